"""``memrelay-gateway mcp``: memory for programs that speak the Model Context Protocol; their keys, tokens and configuration.

A value is taken from the first of these that sets it: an argument of a call, an option, a variable (ours, then MemWal's), the
values saved at login, the default. No block of configuration contains a secret.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gateway_plugin.commands.keys import revoke
from gateway_plugin.commands.run import (
    PLACE,
    Output,
    Run,
    YesOption,
    agent_identity,
    bridge_command,
    command,
    days_option,
    find_context,
    guarded,
    root_holder,
    with_client,
)
from gateway_plugin.hosting import (
    HostAdapter,
    InitOptions,
    KeyHolder,
    RootHolder,
    SystemClock,
    agent_name,
    holder_for,
    notify,
    secret_path,
    settings_from,
    typed,
)
from gateway_plugin.hosts.mcp.credentials import (
    ClientTokens,
    Credentials,
    Pairing,
    credentials_path,
    find_holder,
    is_given,
    issue,
    reply_to,
    save,
    saved,
    serial,
    stamp,
)
from gateway_plugin.hosts.mcp.memory import ClientMemory, Offered, ToolCaller
from gateway_plugin.plugin import AsyncMemoryPlugin
from gateway_plugin.settings.model import DEFAULT_URL, PluginSettings
from relayer.wire import names
from relayer.wire.calls import in_url, is_loopback
from relayer.wire.codec import InvalidName
from relayer.wire.command_line import FAILED, USAGE, answer_in_lines, fail
from relayer.wire.fields import render_time

NAME: Final = "memrelay"
TOKEN_VARIABLE: Final = "MEMRELAY_MCP_TOKEN"  # noqa: S105 - the name of a variable
"""The variable with a client's token for the HTTP form. Configuration files are often shared, so the token is not in them."""


class ClientProgram(StrEnum):
    """The client programs whose configuration format is supported."""

    CLAUDE_CODE = "claude-code"
    CURSOR = "cursor"
    CODEX = "codex"
    VSCODE = "vscode"
    ZED = "zed"


_FILES: Final = {
    ClientProgram.CLAUDE_CODE: ".mcp.json of a project, or for yourself: claude mcp add-json --scope user memrelay 'ENTRY'",
    ClientProgram.CURSOR: "~/.cursor/mcp.json, or .cursor/mcp.json of a project",
    ClientProgram.CODEX: "~/.codex/config.toml",
    ClientProgram.VSCODE: ".vscode/mcp.json, or MCP: Open User Configuration",
    ClientProgram.ZED: "settings.json (zed: open settings)",
}
_SECTIONS: Final = {ClientProgram.VSCODE: "servers", ClientProgram.ZED: "context_servers"}


def started_block(client: ClientProgram, command: str, arguments: Sequence[str]) -> str:
    """Return the configuration text with which a client starts the server over standard streams."""
    entry: dict[str, Any] = {"command": command, "args": [*arguments]}
    if client in {ClientProgram.CLAUDE_CODE, ClientProgram.VSCODE}:
        entry = {"type": "stdio", **entry}
    if client is ClientProgram.ZED:
        entry = {"source": "custom", **entry}
    return _toml(entry) if client is ClientProgram.CODEX else _json(client, entry)


def found_block(client: ClientProgram, url: str) -> str:
    """Return the block that makes a client use the running server at a URL, with its token from `TOKEN_VARIABLE`."""
    if client is ClientProgram.CODEX:
        return _toml({"url": url, "bearer_token_env_var": TOKEN_VARIABLE})
    if client is ClientProgram.VSCODE:
        asked = {
            "type": "promptString",
            "id": "memrelay-token",
            "description": "memrelay token",
            "password": True,
        }
        headers = {"Authorization": "Bearer ${input:memrelay-token}"}
        block = {"inputs": [asked], "servers": {NAME: {"type": "http", "url": url, "headers": headers}}}
        return json.dumps(block, indent=2)
    variable = {ClientProgram.CURSOR: f"${{env:{TOKEN_VARIABLE}}}", ClientProgram.ZED: "TOKEN"}
    headers = {"Authorization": f"Bearer {variable.get(client, f'${{{TOKEN_VARIABLE}}}')}"}
    kind = {"type": "http"} if client is ClientProgram.CLAUDE_CODE else {}
    return _json(client, {**kind, "url": url, "headers": headers})


def _json(client: ClientProgram, entry: Mapping[str, Any]) -> str:
    return json.dumps({_SECTIONS.get(client, "mcpServers"): {NAME: entry}}, indent=2)


def _toml(entry: Mapping[str, Any]) -> str:
    # JSON strings and lists of strings are valid TOML, too.
    lines = [f"{name} = {json.dumps(value)}" for name, value in entry.items()]
    return "\n".join((f"[mcp_servers.{NAME}]", *lines))


if TYPE_CHECKING:
    from gateway_plugin.hosts.mcp.server import Context

mcp = typer.Typer(
    help="""Memory for MCP clients: a server, its keys, and what to paste into a client.

    Example: memrelay-gateway mcp --agent coder

    Example: memrelay-gateway mcp --http --port 8788
    """
)

DEFAULT_PORT: Final = 8788
_DAYS: Final = 90
_URL_VARIABLES: Final = ("MEMRELAY_URL", "MEMWAL_SERVER_URL")
_NAMESPACE_VARIABLES: Final = ("MEMRELAY_MCP_NAMESPACE", "MEMWAL_NAMESPACE")
_DEBUG_VARIABLES: Final = ("MEMRELAY_MCP_DEBUG", "MEMWAL_MCP_DEBUG")
_EXTRA: Final = "python3 -m pip install '.[mcp]' in a clone of memrelay"
_CHECK_SECONDS: Final = 15.0

RelayerOption = Annotated[
    str | None, typer.Option("--relayer", "--url", metavar="URL", help="The relayer.", rich_help_panel=PLACE)
]
AgentOption = Annotated[
    str | None, typer.Option("--agent", metavar="NAME", help="Whose memories.", rich_help_panel=PLACE)
]
NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", "--ns", metavar="NAME", help="A set of memories below the agent's own."),
]
LabelOption = Annotated[
    str, typer.Option("--label", metavar="TEXT", help="For you, to tell one from another.")
]
DaysOption = Annotated[float, days_option("How long the keys are good.")]


@dataclass(frozen=True, slots=True)
class _Choice:
    relayer: str | None
    agent: str | None
    namespace: str
    offered: Offered


@mcp.callback(invoke_without_command=True)
def serve(
    context: typer.Context,
    *,
    http: Annotated[
        bool, typer.Option("--http", help="Over HTTP on this machine, not standard streams.")
    ] = False,
    host: Annotated[str, typer.Option(help="With --http: a loopback address.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="With --http; 0 takes a free one.")
    ] = DEFAULT_PORT,
    agent: AgentOption = None,
    agent_per_client: Annotated[
        bool, typer.Option("--agent-per-client", help="Each client's program has memories of its own.")
    ] = False,
    namespace: NamespaceOption = None,
    tools: Annotated[Offered, typer.Option(help="Under whose names tools are listed.")] = Offered.ALL,
    relayer: RelayerOption = None,
    local: Annotated[bool, typer.Option("--local", help=f"The relayer at {DEFAULT_URL}.")] = False,
    prod: Annotated[bool, typer.Option("--prod", help="The relayer of MEMRELAY_PROD_URL.")] = False,
    staging: Annotated[bool, typer.Option("--staging", help="The relayer of MEMRELAY_STAGING_URL.")] = False,
    dev: Annotated[bool, typer.Option("--dev", help="The relayer of MEMRELAY_DEV_URL.")] = False,
    log_in: Annotated[bool, typer.Option("--login", help="As mcp login.")] = False,
    log_out: Annotated[bool, typer.Option("--logout", help="As mcp logout --yes.")] = False,
    label: LabelOption = "",
    web_url: Annotated[
        str | None, typer.Option("--web-url", metavar="URL", help="Accepted; there is no page to log in at.")
    ] = None,
) -> None:
    """Serve memory to an MCP client over standard input and output; a client starts this, not a person."""
    if context.invoked_subcommand is not None:
        return
    presets = {"local": local, "prod": prod, "staging": staging, "dev": dev}
    chosen = _relayer(relayer, [name for name, given in presets.items() if given])
    if web_url is not None:
        notify(
            "memrelay: --web-url does nothing here: keys are made by memrelay-gateway mcp login, on a command line"
        )
    if log_in or log_out:
        if log_in and log_out:
            fail(USAGE, "--login, --logout: give one of them", "memrelay-gateway mcp login")
        people = Output(as_json=False)
        _login(chosen, agent, label=label, days=_DAYS, output=people) if log_in else logout(yes=True)
        return
    choice = _Choice(chosen, agent, _namespace(namespace), tools)
    if agent is not None:
        guarded(lambda: agent_name(agent, shown=True))
    if http and agent_per_client:
        fail(
            USAGE,
            "--agent-per-client: with --http each token has an agent",
            "memrelay-gateway mcp token --agent NAME",
        )
    try:
        if http:
            _serve_http(choice, host, port)
        else:
            _serve_stdio(choice, per_client=agent_per_client)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"mcp", "mcp_types", "anyio", "starlette", "uvicorn"}:
            raise
        fail(USAGE, f"this needs the package {error.name}, which is not installed", _EXTRA)


def _serve_stdio(choice: _Choice, *, per_client: bool) -> None:
    # Imported here, because this module loads the SDK, which is in an extra.
    from gateway_plugin.hosts.mcp.server import MemoryServer, client_agent, serve_stdio  # noqa: PLC0415

    def caller_of(ctx: Context) -> ToolCaller:
        own = client_agent(ctx) if per_client and choice.agent is None else None
        return ToolCaller(own or choice.agent, choice.namespace)

    if sys.stdin.isatty():
        notify(
            "memrelay: an MCP client starts this, and speaks to it; for yours: memrelay-gateway mcp config --for"
        )

    async def run() -> None:
        async with aclosing(await _opened(choice)) as memory:
            server = MemoryServer(memory, caller_of, offered=choice.offered, debug=_debug())
            await serve_stdio(server.server())

    asyncio.run(run())


def _serve_http(choice: _Choice, host: str, port: int) -> None:
    # Imported here, because these modules load the SDK, which is in an extra.
    from gateway_plugin.hosts.mcp import http  # noqa: PLC0415
    from gateway_plugin.hosts.mcp.server import MemoryServer  # noqa: PLC0415

    if not is_loopback(host):
        fail(
            USAGE,
            "--host: only this machine may reach it",
            "--host 127.0.0.1; each machine runs one of its own",
        )
    tokens = guarded(lambda: ClientTokens(os.environ))
    given = guarded(tokens.all)
    listening = _bound(host, port)

    def caller_of(ctx: Context) -> ToolCaller:
        found = http.caller_of(ctx)
        return found if found.namespace else ToolCaller(found.agent, choice.namespace)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            # uvicorn raises the signal again when it has stopped. Ignore it then, so that pending turns are still delivered.
            loop.add_signal_handler(number, lambda: None)
        memory = await _opened(choice)
        server = MemoryServer(memory, caller_of, offered=choice.offered, debug=_debug())
        address = f"http://{in_url(host)}:{listening.getsockname()[1]}{http.PATH}"
        notify(f"memrelay: MCP at {address} for {len(given)} {'token' if len(given) == 1 else 'tokens'}")
        if not given:
            notify("memrelay: no client may connect yet: memrelay-gateway mcp token --agent NAME")
        async with aclosing(memory):
            await http.serve_http(
                http.application(server.server(), tokens.agent_of, SystemClock()), listening
            )

    asyncio.run(run())


def _plugin(choice: _Choice) -> AsyncMemoryPlugin:
    settings = settings_from(None, os.environ, url=_url(choice.relayer))
    if settings.disabled:
        return AsyncMemoryPlugin(settings=settings, agent=choice.agent)
    holder, found = find_holder(os.environ, settings, choice.agent)
    if found is not None and _url(choice.relayer) is None:
        settings = settings.model_copy(update={"url": found.relayer})
    return AsyncMemoryPlugin(settings=settings, holder=holder, agent=choice.agent)


async def _opened(choice: _Choice) -> ClientMemory:
    """Open the memory. A problem is printed here for people, and returned to the model with every call."""
    memory = ClientMemory(lambda: _plugin(choice), lambda: stamp(os.environ))
    if problem := await memory.open():
        notify(f"memrelay: {problem}")
    return memory


def _url(chosen: str | None) -> str | None:
    return chosen or _first(_URL_VARIABLES)


def _relayer(given: str | None, presets: list[str]) -> str | None:
    if len(presets) + (given is not None) > 1:
        fail(
            USAGE, "--relayer, --local, --prod, --staging, --dev: give one of them", "--relayer URL names any"
        )
    if not presets:
        return given
    if presets == ["local"]:
        return DEFAULT_URL
    variable = f"MEMRELAY_{presets[0].upper()}_URL"
    if not os.environ.get(variable):
        fail(
            USAGE,
            f"--{presets[0]}: {variable} is not set",
            "set it to that relayer's URL, or give --relayer URL",
        )
    return os.environ[variable]


def _namespace(given: str | None) -> str:
    name = given if given is not None else _first(_NAMESPACE_VARIABLES) or ""
    if given is None and name in {"", "default"}:
        return ""
    try:
        return "/".join(names.as_shown(part) for part in name.split("/")) if name != "default" else ""
    except InvalidName as error:
        return fail(USAGE, f"--namespace: {error}", "--namespace NAME")


def _first(variables: tuple[str, ...]) -> str | None:
    return next((os.environ[name] for name in variables if os.environ.get(name)), None)


def _debug() -> Callable[[str], None] | None:
    wanted = (_first(_DEBUG_VARIABLES) or "").lower() not in {"", "0", "false", "no", "off"}
    return (lambda line: notify(f"memrelay mcp: {line}")) if wanted else None


def _bound(host: str, port: int) -> socket.socket:
    name = host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    try:
        return socket.create_server((name, port), family=family)
    except OSError as error:
        return fail(FAILED, f"--port: {port} cannot be had ({error.strerror})", "--port 0 takes a free one")


@command(mcp, agent=None, url=None)
def config(
    run: Run,
    *,
    client: Annotated[ClientProgram, typer.Option("--for", help="Whose configuration.")],
    http: Annotated[
        bool, typer.Option("--http", help="It finds a server that runs, and does not start one.")
    ] = False,
    port: Annotated[int, typer.Option(min=1, max=65535, help="With --http.")] = DEFAULT_PORT,
    agent: AgentOption = None,
    namespace: NamespaceOption = None,
    tools: Annotated[Offered, typer.Option(help="Under whose names tools are listed.")] = Offered.MEMRELAY,
    relayer: RelayerOption = None,
) -> None:
    """Print what to paste into a client's configuration; it holds no secret.

    Example: memrelay-gateway mcp config --for claude-code --agent coder
    """
    where = _FILES[client]
    if http:
        if agent or namespace or relayer:
            fail(
                USAGE,
                "--http: the server has its relayer, and the token its agent",
                "memrelay-gateway mcp token --agent NAME",
            )
        block = found_block(client, f"http://127.0.0.1:{port}/mcp")
        run.json({"client": client.value, "where": where, "block": block})
        run.raw(block)
        notify(
            f"where: {where}\ntoken: memrelay-gateway mcp token --agent NAME, in {TOKEN_VARIABLE} or where the block says"
            "\nserver: memrelay-gateway mcp --http"
        )
        return
    arguments = ["mcp", "--tools", tools.value]
    arguments += ["--agent", guarded(lambda: typed(agent_name(agent, shown=True)))] if agent else []
    arguments += ["--namespace", _namespace(namespace)] if namespace else []
    url = _url(relayer)
    arguments += ["--relayer", _checked(url).url] if url is not None else []
    block = started_block(client, bridge_command(), arguments)
    run.json({"client": client.value, "where": where, "block": block})
    run.raw(block)
    notify(f"where: {where}")


def _checked(url: str) -> PluginSettings:
    return guarded(lambda: settings_from({"url": url}, {}, url=None))


@command(mcp, agent=None, url=None)
def login(
    run: Run,
    *,
    relayer: RelayerOption = None,
    agent: AgentOption = None,
    label: LabelOption = "",
    days: DaysOption = _DAYS,
    pair: Annotated[
        bool,
        typer.Option(
            "--pair", help="The secret is on another machine: print a code for it, and take its reply."
        ),
    ] = False,
) -> None:
    """Save one agent's keys for MCP servers of this user, once the relayer has accepted them.

    Example: memrelay-gateway mcp login --relayer https://relayer.example.org --agent coder

    Example: memrelay-gateway mcp login --pair
    """
    if not pair:
        _login(relayer, agent, label=label, days=days, output=run)
        return
    begun = Pairing.begin()
    approve = f"memrelay-gateway mcp approve --agent {agent or 'NAME'} {begun.code(int(time.time()))}"
    # There are two documents, one before and one after the reply, so each is printed on one line.
    answer_in_lines()
    run.tell(
        {"approve": approve},
        f"On the machine that keeps the gateway's secret, within five minutes:\n  {approve}\n"
        "Then paste its reply here:",
    )
    reply = sys.stdin.readline()
    found = guarded(lambda: begun.open(reply))
    if agent is not None and guarded(lambda: agent_name(agent, shown=True)) != found.agent:
        fail(
            FAILED, f"--agent: the reply holds the keys of agent {typed(found.agent)}", "nothing was changed"
        )
    url = _url(relayer) or found.relayer
    _keep(found.model_copy(update={"relayer": url}), _checked(url), run)


def _login(relayer: str | None, agent: str | None, *, label: str, days: float, output: Output) -> None:
    _keep(*_issued(relayer, agent, label, days, instead="memrelay-gateway mcp login --pair"), output)


def _issued(
    relayer: str | None, agent: str | None, label: str, days: float, *, instead: str = ""
) -> tuple[Credentials, PluginSettings]:
    context = find_context(_url(relayer), agent)
    holder = root_holder(context, "making an agent's keys", instead=instead)
    whose, url, now = context.identity.agent, context.settings.url, int(SystemClock().now())
    return issue(holder, whose, relayer=url, days=int(days), label=label, now=now), context.settings


def _keep(credentials: Credentials, settings: PluginSettings, output: Output) -> None:
    """Save keys if the relayer accepts them; if anything fails before, the saved keys are not changed."""
    holder = guarded(credentials.holder)
    settings = settings.model_copy(update={"url": credentials.relayer})
    try:
        identity = guarded(lambda: agent_identity(settings, holder, None))
        with_client(settings, lambda client: client.list_memories(identity, limit=1, deadline=_CHECK_SECONDS))
    except typer.Exit:
        notify("  nothing was saved; what was saved before stays as it was")
        raise
    path = guarded(lambda: save(os.environ, credentials))
    until = time.strftime("%Y-%m-%d", time.gmtime(credentials.expires_at))
    whose = typed(credentials.agent)
    good_until = render_time(credentials.expires_at * 1000)
    output.json({"agent": whose, "relayer": credentials.relayer, "good_until": good_until, "file": str(path)})
    output.say(f"saved: agent {whose} at {credentials.relayer}, good until {until}")
    output.say(f"file: {path}")
    output.say(
        "next: memrelay-gateway mcp config --for claude-code; a server that runs takes them up with memwal_login"
    )


@command(mcp, agent=None, url=None)
def approve(
    run: Run,
    code: Annotated[str, typer.Argument(metavar="CODE", help="What `mcp login --pair` printed.")],
    *,
    agent: Annotated[str, typer.Option("--agent", metavar="NAME", help="Whose keys.")],
    relayer: RelayerOption = None,
    label: LabelOption = "",
    days: DaysOption = _DAYS,
) -> None:
    """Answer a pairing code with one agent's keys, which only the machine that asked can read.

    Example: memrelay-gateway mcp approve CODE --agent coder
    """
    made, _ = _issued(relayer, agent, label, days)
    reply = guarded(lambda: reply_to(code, made, now=made.created_at))
    run.json({"agent": typed(made.agent), "reply": reply})
    run.raw(reply)


@command(mcp, agent=None, url=None)
def logout(
    run: Run,
    *,
    yes: YesOption = False,
    here: Annotated[
        bool, typer.Option("--here", help="Only remove the file; the keys stay valid until they are revoked.")
    ] = False,
) -> None:
    """Take the saved keys back at the relayer, then remove them from this machine.

    Example: memrelay-gateway mcp logout --yes
    """
    found = guarded(lambda: saved(os.environ))
    if found is None:
        run.tell({"removed": None, "taken_back": False}, "nothing to do: no keys are saved here")
        return
    path = credentials_path(os.environ)
    what = f"the keys of agent {typed(found.agent)} at {found.relayer}"
    there = f"memrelay-gateway keys revoke --certificate {found.certificate} --yes"
    root = None if here else _root_of(found)
    if root is None and not here:
        fail(
            FAILED,
            f"{what} can be taken back only where the gateway's secret is; nothing was changed",
            f"there: {there}\n  then here: memrelay-gateway mcp logout --here --yes",
        )
    if not yes:
        done = "removed from this machine" if here else "taken back for good, and removed from this machine"
        would = {"dry_run": True, "agent": typed(found.agent), "relayer": found.relayer}
        run.tell(would, f"would be {done}: {what}\ndo it: --yes")
        return
    if root is not None:
        settings = _checked(found.relayer)
        number = guarded(lambda: serial(found))
        with_client(settings, lambda client: revoke(client, root, found.agent, serials=(number,)))
        run.say(f"taken back at {found.relayer}: {what}")
    path.unlink(missing_ok=True)
    run.tell({"removed": str(path), "taken_back": root is not None}, f"removed: {path}")
    if root is None:
        run.say(f"they stay good until, where the gateway's secret is: {there}")


def _root_of(credentials: Credentials) -> RootHolder | None:
    """Return the secret of the account that issued the keys, if it is on this machine; never create one."""
    settings = guarded(lambda: settings_from(None, os.environ, url=None))
    if not is_given(os.environ, settings) and not secret_path(os.environ).exists():
        return None
    holder: KeyHolder = guarded(lambda: holder_for(settings, os.environ))
    return holder if isinstance(holder, RootHolder) and holder.account == credentials.account else None


@command(mcp, agent=None, url=None)
def token(
    run: Run,
    *,
    agent: AgentOption = None,
    label: LabelOption = "",
    revoke_id: Annotated[
        str | None, typer.Option("--revoke", metavar="ID", help="Take one back; see --list.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show whose there are, and no token.")] = False,
) -> None:
    """Make a token with which a client connects to `mcp --http` as an agent; it is shown once.

    Example: memrelay-gateway mcp token --agent coder

    Example: memrelay-gateway mcp token --list
    """
    tokens = guarded(lambda: ClientTokens(os.environ))
    if listed:
        given = guarded(tokens.all)
        rows = [
            {
                "id": one.id,
                "agent": one.agent,
                "label": one.label,
                "created_at": render_time(one.created_at * 1000),
            }
            for one in given
        ]
        run.tell(rows, *(f"{one.id}  {one.agent}  {one.label}".rstrip() for one in given))
    elif revoke_id is not None:
        if not guarded(lambda: tokens.remove(revoke_id)):
            fail(FAILED, "--revoke: there is no token of this id", "memrelay-gateway mcp token --list")
        said = f"taken back: {revoke_id}; a server that runs refuses it from now on"
        run.tell({"revoked": revoke_id}, said)
    else:
        whose = guarded(lambda: typed(agent_name(agent or "main", shown=True)))
        made = guarded(lambda: tokens.add(whose, label=label, now=int(SystemClock().now())))
        run.json({"agent": whose, "token": made})
        run.raw(made)
        if not run.as_json:
            notify(f"of agent {whose}; a client sends it as: Authorization: Bearer TOKEN")


def init(_options: InitOptions) -> None:
    """Refuse ``memrelay-gateway init --host mcp``, and name the command that prints a client's configuration."""
    fail(
        USAGE,
        "--host: each MCP client has a block of its own",
        "memrelay-gateway mcp config --for claude-code",
    )


ADAPTER: Final = HostAdapter(name="mcp", init=init)


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(mcp, name="mcp")
