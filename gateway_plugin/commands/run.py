"""Shared parts of all ``memrelay-gateway`` commands: output, choice of agent and relayer, and error messages with a fix.

Exit codes: 0 success; 1 refused or failed; 2 wrong usage or settings; 3 the relayer did not respond in time.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, NoReturn, ParamSpec, TypeVar
from urllib.parse import unquote

import typer
from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.calls.trust import RelayerAddress
from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import (
    DeadlineExceeded,
    GatewayError,
    IdentityError,
    RelayerRefused,
    RelayerUnreachable,
    RelayerUntrusted,
    SettingsError,
)
from gateway_plugin.keys.identity import (
    DEFAULT_NAME,
    Identity,
    KeyHolder,
    RootHolder,
    identify,
    parse_session_key,
    platform_id,
)
from gateway_plugin.outbox.queue import Outbox, outbox_path
from gateway_plugin.recall.formatting import age_in_words, label_of_others, told_at
from gateway_plugin.recall.sharing import SharedHit
from gateway_plugin.settings.model import DEFAULT_URL, PluginSettings
from gateway_plugin.setup import connect, holder_for, settings_from
from gateway_plugin.turn.status import notify
from relayer.wire import names
from relayer.wire.codec import InvalidName
from relayer.wire.command_line import FAILED, UNREACHABLE, USAGE, JsonOption, answer, fail, span
from relayer.wire.fields import one_line
from relayer.wire.schemas import Memory, RecallHit, with_replaced
from relayer.wire.service import NamespaceView


class Output:
    """Standard output in the requested form: lines for people, or one JSON document. Calls for the other form print nothing."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._console = Console(highlight=False, soft_wrap=True, quiet=as_json)

    def json(self, value: BaseModel | Mapping[str, Any] | Sequence[Any]) -> None:
        """Print the JSON document."""
        if self.as_json:
            answer(value.model_dump(mode="json") if isinstance(value, BaseModel) else value)

    def tell(self, value: BaseModel | Mapping[str, Any] | Sequence[Any], *sentences: str) -> None:
        """Print the JSON document, or one line per sentence."""
        self.json(value)
        for sentence in sentences:
            self.say(sentence)

    def say(self, sentence: str) -> None:
        """Print a line without interpreting any markup in it."""
        self._console.print(Text(sentence))

    def raw(self, text: str) -> None:
        """Print lines unchanged."""
        self._console.out(text, highlight=False)

    def facts(self, document: Mapping[str, Any], **shown: str) -> None:
        """Print the JSON document, or its names and values. For people, values in ``shown`` replace those of the document."""
        self.json(document)
        self.pairs((name.replace("_", " "), value) for name, value in {**document, **shown}.items())

    def pairs(self, rows: Iterable[tuple[str, object]]) -> None:
        """Print names and values. Values are never wrapped, so that they can be copied."""
        known = list(rows)
        width = max((len(name) for name, _ in known), default=0)
        for name, value in known:
            self._console.print(Text(name.ljust(width + 2), style="dim") + Text(one_line(str(value))))

    def memories(
        self,
        memories: Sequence[Memory],
        *,
        owners: Collection[str],
        cited: Mapping[str, str] | None = None,
        whole: bool = False,
        former: bool = False,
    ) -> None:
        """Print memories, one per row; hits with their relevance, their date, and the file and line that they come from.

        The statements of a memory that other memories replaced follow its text: with ``former`` all of them, and what replaced them,
        otherwise those that what is left may lean on; and what it replaced itself, if that said more. If some are not the own words of the agent's owner, whose ids are ``owners``, a column says who said them and where.
        """
        now = datetime.fromtimestamp(SystemClock().now(), UTC).astimezone()
        hits = any(isinstance(memory, RecallHit) for memory in memories)
        labels = [label_of_others(memory, owners) for memory in memories]
        rows = []
        for memory, label in zip(memories, labels, strict=True):
            age = age_in_words(told_at(memory), now)
            relevance = (f"{memory.relevance:.2f}",) if isinstance(memory, RecallHit) else ()
            state = "" if memory.state == "live" else f" ({memory.state})"
            state += f" (not to mention: {', '.join(memory.unmentioned)})" if memory.unmentioned else ""
            shown = [one for one in memory.replaced if former or one.followed]
            by = f" (see {', '.join(dict.fromkeys(one.by for one in shown))})" if former and shown else ""
            before = memory.before if isinstance(memory, RecallHit) else ""
            text = with_replaced(memory.text, (one.text for one in shown), before) + by
            said = (one_line(text), *((label,) if any(labels) else ()))
            source = (_origin(memory, cited or {}),) if hits else ()
            rows.append((memory.id, *relevance, age, memory.kind + state, *said, *source))
        headings = (
            "id",
            *(("relevance",) if hits else ()),
            "when",
            "kind",
            "text",
            *(("whose",) if any(labels) else ()),
            *(("source",) if hits else ()),
        )
        self._rows(headings, rows, long="text", whole=whole)

    def _rows(
        self, headings: Sequence[str], rows: Sequence[Sequence[str]], *, long: str = "", whole: bool = False
    ) -> None:
        """Print a table. On a terminal the column ``long`` is clipped unless ``whole``; otherwise each row is one line."""
        if not self._console.is_terminal:
            widths = [
                0 if name == long else max(map(len, column))
                for name, *column in zip(headings, headings, *rows, strict=True)
            ]
            for row in (headings, *rows):
                cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
                self._console.out("  ".join(cells).rstrip(), highlight=False)
            return
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in headings:
            folded = heading == long and whole
            table.add_column(heading, no_wrap=not folded, overflow="fold" if folded else "ellipsis")
        for row in rows:
            table.add_row(*map(Text, row))
        self._console.print(table)

    def nothing_found(self, namespace: str, considered: int, *, show_all: str = "") -> None:
        """Report that there are no memories, or none that are relevant enough."""
        if not considered:
            self.say(
                f"{namespace} has no memories. Another agent's: --agent NAME, see memrelay-gateway namespaces."
            )
            return
        memories = "the one memory" if considered == 1 else f"the {considered} memories"
        self.say(f"Nothing relevant among {memories} of {namespace}. {show_all} shows the nearest ones.")

    def namespaces(self, views: Sequence[NamespaceView]) -> None:
        """Print namespaces, one per row."""
        rows = []
        for view in views:
            memories = "?" if view.memories is None else str(view.memories)
            size = "?" if view.bytes is None else str(view.bytes)
            rows.append((view.name, memories, size, view.custody, view.state))
        self._rows(("name", "memories", "bytes", "custody", "state"), rows)
        if any(view.memories is None for view in views):
            self.say("?: not loaded by the relayer; memrelay-gateway status --agent NAME loads and counts it")


def date_of(memory: Memory) -> date:
    """Return the local date of what a memory is about."""
    return told_at(memory).astimezone().date()


def _origin(memory: Memory, cited: Mapping[str, str]) -> str:
    source = one_line(cited.get(memory.id) or memory.source.reference)
    shared = f"shared from {memory.shared_from}" if isinstance(memory, SharedHit) else ""
    return ", ".join(part for part in (source, date_of(memory).isoformat(), shared) if part)


_T = TypeVar("_T")
_P = ParamSpec("_P")
PLACE: Final = "Agent and relayer"
"""The heading of the options for agent and relayer, in every help."""
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="NAME",
        help="Name of the agent, or NAME/BELOW for a namespace below it. Default: main.",
        rich_help_panel=PLACE,
    ),
]
LimitOption = Annotated[
    int, typer.Option("--limit", "-k", "--max-results", min=1, max=100, help="Maximum number of results.")
]
FloorOption = Annotated[
    float, typer.Option("--floor", "--min-score", min=0, max=1, help="Minimum relevance; 0 shows everything.")
]
YesOption = Annotated[
    bool, typer.Option("--yes", help="Apply the change; without this option, only show what would happen.")
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help=f"URL of the relayer. Default: MEMRELAY_URL, or {DEFAULT_URL}.",
        rich_help_panel=PLACE,
    ),
]


def days_option(said: str) -> Any:
    """Return the option ``--days``, for how long what a command signs is valid; ``said`` is its help."""
    return typer.Option(parser=span("--days", "d", least=1, most=3650), metavar="DAYS|12w", help=said)


@dataclass(frozen=True, slots=True)
class CliContext:
    """Settings, keys, and the identity of the selected agent."""

    settings: PluginSettings
    holder: KeyHolder
    identity: Identity

    @property
    def origin(self) -> str:
        """Return the relayer's origin; exit with an error if its URL is invalid."""
        return guarded(lambda: RelayerAddress.parse(self.settings.url)).origin


def find_context(url: str | None, agent: str | None) -> CliContext:
    """Find settings and keys; ``url`` and ``agent`` from the command line take precedence.

    ``agent`` may name a namespace below the agent's own: ``coder/sender-ana``, ``main/sender-ana``.
    """

    def find() -> CliContext:
        settings = settings_from(None, os.environ, url=url)
        holder = holder_for(settings, os.environ, create=not settings.disabled)
        # An empty name, as from an unset variable, is refused, so that the command does not use another agent's memories.
        whose, *below = (None,) if agent is None else agent.split("/")
        try:
            identity = agent_identity(
                settings, holder, settings.agent if whose is None else whose, shown=True
            )
            parts = [names.as_shown(part) for part in below]
            if whose is not None and names.normalise(whose) == DEFAULT_NAME:
                notify("memrelay: note that this is an agent named default; the default agent is main")
        except InvalidName as error:
            raise IdentityError(f"--agent: {error}") from error
        if parts:
            identity = replace(identity, namespace="/".join((identity.agent, *parts)))
        return CliContext(settings, holder, identity)

    return guarded(find)


def agent_identity(
    settings: PluginSettings, holder: KeyHolder, agent: str | None, *, shown: bool = False
) -> Identity:
    """Return the account, namespace and keys with which requests for an agent are signed.

    ``agent`` may be in the form that commands print if ``shown``, see `gateway_plugin.keys.identity.named`.

    Raises:
        IdentityError: the name is invalid, or the keys of this agent are not available; see `identify`.
    """
    return identify(
        holder,
        parse_session_key(""),
        default_agent=agent,
        shown=shown,
        default_namespace=settings.namespace.default,
        profile=settings.namespace.profile,
        renamed=settings.namespace.renamed,
    )


def root_holder(context: CliContext, doing: str, *, instead: str = "") -> RootHolder:
    """Return the keys of the whole account; exit with an error if only one agent's keys are available."""
    holder = context.holder
    if not isinstance(holder, RootHolder):
        fix = "run it on the host that keeps the root secret, in MEMRELAY_SECRET or a file"
        fail(
            USAGE,
            f"{doing} needs the gateway's root secret; this host only has the keys of one agent",
            f"{fix}, or: {instead}" if instead else fix,
        )
    return holder


@contextmanager
def open_outbox(context: CliContext) -> Iterator[Outbox]:
    """Open the outbox of a gateway's keys and relayer; its errors end the command, as in `guarded`."""
    outbox = Outbox(guarded(lambda: outbox_path(os.environ, context.holder, context.origin)), context.holder)
    try:
        yield outbox
    except GatewayError as error:
        _end(error)
    finally:
        outbox.close()


def with_client(
    settings: PluginSettings, work: Callable[[RelayerClient], Awaitable[_T]], *, whose: str = ""
) -> _T:
    """Run ``work`` with a client of the relayer; ``whose`` is its namespace, for the message if something is not found."""
    return guarded(lambda: asyncio.run(used(settings, work)), whose=whose)


class Run(Output):
    """One run of a command: its output, and the agent and the relayer that its options name."""

    def __init__(self, *, agent: str | None = None, url: str | None = None, as_json: bool = False) -> None:
        super().__init__(as_json=as_json)
        self.agent = agent
        self.url = url

    @cached_property
    def context(self) -> CliContext:
        """Return settings, keys and identity; exit with an error if they cannot be found."""
        return find_context(self.url, self.agent)

    def ask(self, work: Callable[[RelayerClient, Identity], Awaitable[_T]]) -> _T:
        """Run ``work`` with a client of the relayer and the agent's identity; exit with an error if it fails."""
        context = self.context
        return with_client(
            context.settings, lambda client: work(client, context.identity), whose=context.identity.namespace
        )


def command(
    app: typer.Typer | None = None, name: str | None = None, *, agent: Any = AgentOption, url: Any = UrlOption
) -> Callable[[Callable[Concatenate[Run, _P], None]], Callable[..., None]]:
    """Return a decorator that makes a command of a function: it adds the common options, and passes them as a `Run`.

    Example:
        @command(app)
        def forget(run: Run, memory_id: IdArgument) -> None:
            answer = run.ask(lambda client, identity: client.forget(identity, memory_id))
            run.tell(answer, f"forgotten: {answer.id}")

    Args:
        app: the application or group to add the command to; None if the caller adds it.
        name: the command's name; None for that of the function.
        agent: the option ``--agent`` as typer declares it; None for a command without it.
        url: the option ``--url``; None for a command without it.
    """
    common = {"agent": (agent, None), "url": (url, None), "as_json": (JsonOption, False)}
    added = {option: declared for option, declared in common.items() if declared[0] is not None}

    def decorate(function: Callable[Concatenate[Run, _P], None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run_command(*args: Any, **kwargs: Any) -> None:
            run = Run(**{option: kwargs.pop(option) for option in added if option in kwargs})
            function(run, *args, **kwargs)

        # typer reads the options from the signature.
        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        own += [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for option, (annotation, default) in added.items()
        ]
        vars(run_command)["__signature__"] = inspect.Signature(own, return_annotation=None)
        run_command.__annotations__ = {one.name: one.annotation for one in own}
        if app is not None:
            app.command(name)(run_command)
        return run_command

    return decorate


async def used(settings: PluginSettings, work: Callable[[RelayerClient], Awaitable[_T]]) -> _T:
    """Run ``work`` with a client and close the client; errors are passed on."""
    async with connect(settings, os.environ, clock=SystemClock()) as client:
        return await work(client)


def guarded(work: Callable[[], _T], *, whose: str = "") -> _T:
    """Call ``work`` and return its result; end the command if it fails with an expected error.

    ``whose`` is the namespace that the error names if the relayer does not know the memory's id.

    Raises:
        typer.Exit: on a `GatewayError`, after its message and a fix were printed; the exit code is its kind.
    """
    try:
        return work()
    except GatewayError as error:
        _end(error, whose)


# Exit code, code for programs, and fix.
_ENDS: Final = {
    RelayerUnreachable: (
        UNREACHABLE,
        "",
        "start one with: memrelay serve      or set another URL: --url URL, MEMRELAY_URL",
    ),
    DeadlineExceeded: (
        UNREACHABLE,
        "deadline_exceeded",
        "the relayer did not answer in time: check its log, then try again",
    ),
    RelayerUntrusted: (
        FAILED,
        "untrusted",
        "its answer was discarded; check what runs at this address with: memrelay-gateway doctor",
    ),
    SettingsError: (USAGE, "settings", ""),
    IdentityError: (USAGE, "identity", ""),
}
_REFUSED: Final = {
    "unauthorized": "check that the relayer serves this account, that both clocks are right, and that this agent's keys are not revoked (memrelay-gateway keys revoked)",
    "account_revoked": "ask the operator of the relayer to lift it: memrelay account revoke ID --undo",
    "wrong_namespace_key": "the namespace was created with a different secret than the one of this gateway",
    "not_found": "list the ids with: memrelay-gateway list",
    "stale_head": "list its versions with: memrelay-gateway show ID",
}


def _end(error: GatewayError, whose: str = "") -> NoReturn:
    if isinstance(error, RelayerRefused):
        if error.code == "not_found" and whose:
            fail(
                FAILED,
                f"{whose} has no memory with this id",
                "list the ids with: memrelay-gateway list; for another agent use --agent NAME",
                kind=error.code,
            )
        fail(FAILED, str(error), _REFUSED.get(error.code, ""), kind=error.code)
    ends = (end for each, end in _ENDS.items() if isinstance(error, each))
    code, kind, fix = next(ends, (FAILED, "", ""))
    fail(code, str(error), fix, kind=kind)


def text_or_file(given: str) -> str:
    """Return the content of a file without white space around it; the text itself if it is not the path of a readable file."""
    text = given.strip()
    with suppress(OSError, ValueError):
        if Path(text).is_file():
            return Path(text).read_text("utf-8").strip()
    return text


def bridge_command() -> str:
    """Return the bridge program: this program, by its full path."""
    sibling = Path(sys.executable).with_name("memrelay-gateway")
    return str(sibling) if sibling.exists() else shutil.which("memrelay-gateway") or "memrelay-gateway"


TagOption = Annotated[list[str] | None, typer.Option("--tag", help="A tag; repeatable.")]
SenderOption = Annotated[
    list[str] | None,
    typer.Option("--sender", metavar="telegram:222", help="Only what is of this person; repeatable."),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="CONDITION",
        help="On metadata: ticket=4711, price>=10, status!=closed, or a filter in JSON; repeatable.",
    ),
]
_CONDITION: Final = re.compile(r"(.+?)(>=|<=|!=|=|>|<)(.*)", re.DOTALL)
_OPERATORS: Final = {"=": "eq", "!=": "not", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}


def filter_of(tags: Sequence[str] | None, conditions: Sequence[str] | None) -> dict[str, Any] | None:
    """Return the filter that all tags and conditions of a command line make together; None without any.

    A value is read as JSON if it is a number, ``true``, ``false`` or ``null``; otherwise it is a text.
    """
    filters: list[Any] = [{"tags": list(tags)}] if tags else []
    for condition in conditions or ():
        if condition.lstrip().startswith("{"):
            try:
                filters.append(json.loads(condition))
            except (ValueError, RecursionError):
                fail(USAGE, "--where: not valid JSON", "")
            continue
        parts = _CONDITION.fullmatch(condition)
        if parts is None or not parts[1].strip():
            fail(USAGE, "--where: give KEY=VALUE, or use one of != > >= < <=", "--where ticket=4711")
        filters.append({parts[1].strip(): {_OPERATORS[parts[2]]: value_of(parts[3])}})
    return {"and": filters} if len(filters) > 1 else filters[0] if filters else None


def sender_ids(senders: Sequence[str] | None) -> tuple[str, ...]:
    """Return the ids of people as they are stored with memories. An id that is stored so already stays the same."""
    people = [unquote(one).partition(":") for one in senders or ()]
    if not all(platform.strip() and name.strip() for platform, _, name in people):
        fail(USAGE, "--sender: give a platform and an id", "--sender telegram:222")
    # The platform is given again, so that of an id in which it is stored twice nothing is left out.
    return tuple(dict.fromkeys(platform_id(platform, f"{platform}:{name}") for platform, _, name in people))


def audiences_of(senders: Sequence[str]) -> tuple[str, ...]:
    """Return the filters for what people said and were told in groups, and for their direct chats, as far as these are kept apart."""
    return tuple(f"{where}{one}" for one in senders for where in ("direct:", "group@"))


def value_of(text: str) -> Any:
    """Return the value that a command line gives: a number, true, false or null in JSON, or else the text itself."""
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        if value is None or isinstance(value, int | float):
            return value
    return text


def built_or_exit(build: Callable[[], _T]) -> _T:
    """Build a request; if it is invalid, exit with the field and the broken rule, but never the value."""
    try:
        return build()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"] if not isinstance(part, int)) or "the request"
        fail(USAGE, f"{field}: {first['msg'].removeprefix('Value error, ')}", "")
