"""``memrelay-gateway``: what a person does with a gateway's memories and keys. Exit codes: see `gateway_plugin.commands.run`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, NoReturn

import typer

from gateway_plugin import __version__
from gateway_plugin.calls.trust import IDENTITY_VARIABLE
from gateway_plugin.client import RelayerClient
from gateway_plugin.commands import doctor, init, life, profile, share, version
from gateway_plugin.commands.keys import keys
from gateway_plugin.commands.outbox import outbox
from gateway_plugin.commands.run import (
    PLACE,
    CliContext,
    FloorOption,
    LimitOption,
    Run,
    SenderOption,
    TagOption,
    WhereOption,
    audiences_of,
    built_or_exit,
    command,
    filter_of,
    guarded,
    open_outbox,
    sender_ids,
    value_of,
    with_client,
)
from gateway_plugin.errors import RelayerRefused
from gateway_plugin.files.commands import index, transfer
from gateway_plugin.files.commands.index import cited_files, told_with_sources
from gateway_plugin.hosting import SEARCH_FLOOR, add_extension_commands
from gateway_plugin.keys.identity import Identity, typed
from gateway_plugin.outbox.queue import OutboxUnavailable
from gateway_plugin.recall.sharing import MergedResponse, Shares, recall_shared
from gateway_plugin.sessions import Toggles
from gateway_plugin.setup import settings_from, shares_path
from relayer.wire.command_line import FAILED, USAGE, application, complain, fail, span
from relayer.wire.schemas import (
    AskRequest,
    ListRequest,
    ListResponse,
    MemoryItem,
    RecallRequest,
    RecallResponse,
    RememberRequest,
)

app = application(
    "memrelay-gateway",
    lambda: __version__,
    help="Memories and keys of this gateway.",
    aliases={
        "update": ("edit",),
        "pin": ("edit", "--pin"),
        "unpin": ("edit", "--unpin"),
        "expire": ("edit",),
        "canary": ("doctor", "--canary"),
        "acknowledge": ("doctor", "--accept-rollback"),
        # As MemWal's users type it.
        "stats": ("status",),
    },
)


@command(app)
def remember(
    run: Run,
    text: Annotated[str, typer.Argument(help="What to remember; - reads standard input.")],
    *,
    kind: Annotated[
        str, typer.Option(help="statement, fact, preference, decision, event, task, ...")
    ] = "statement",
    tag: TagOption = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A field of its metadata; may be given again."),
    ] = None,
    secret: Annotated[
        bool, typer.Option("--secret", help="Keep passwords and codes, which are left out otherwise.")
    ] = False,
) -> None:
    """Store one memory, word for word but for passwords and codes.

    Example: memrelay-gateway remember "Our staging database is called heron." --agent coder

    Example: memrelay-gateway remember - --kind decision --tag infra --metadata ticket=4711 < notes.txt
    """
    said = sys.stdin.buffer.read().decode(errors="surrogateescape").strip() if text == "-" else text
    fields: dict[str, object] = {}
    for given in metadata or ():
        key, equals, value = given.partition("=")
        if not equals or not key.strip():
            fail(USAGE, "--metadata: give KEY=VALUE", "--metadata ticket=4711")
        fields[key.strip()] = value_of(value)
    item = {"text": said, "kind": kind, "tags": tag or (), "metadata": fields}
    request = built_or_exit(
        lambda: RememberRequest(items=(MemoryItem.model_validate(item),), keep_secrets=secret)
    )
    answer = run.ask(lambda client, identity: client.remember(identity, request))
    stored = answer.memories[0]
    run.json(answer)
    if stored.status == "refused":
        fail(FAILED, f"rejected by the relayer: {stored.code}", "")
    run.say(f"{'known already' if stored.status == 'duplicate' else 'remembered'}: {stored.id}")
    if not secret and (left_out := life.secrets_left_out(run, said, stored.id)):
        them = "it" if len(left_out) == 1 else "them"
        run.say(f"stored without the {' and the '.join(left_out)}; --secret keeps {them}")


_NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--agent", "--namespace", metavar="NAME", help="Whose memories. Default: main.", rich_help_panel=PLACE
    ),
]


@command(app, agent=_NamespaceOption)
def search(
    run: Run,
    query: Annotated[str, typer.Argument(help="What to look for.")],
    *,
    limit: LimitOption = 5,
    floor: FloorOption = SEARCH_FLOOR,
    include: Annotated[
        list[str] | None, typer.Option(help="superseded, forgotten: these, too; may be given again.")
    ] = None,
    as_of: Annotated[
        str | None, typer.Option(metavar="TIME", help="What held then: 2026-05-01, or with a time.")
    ] = None,
    half_life: Annotated[
        float | None,
        typer.Option(
            parser=span("--half-life", "d"),
            metavar="DAYS|12h|8w",
            help="With each such age a memory counts half.",
        ),
    ] = None,
    diversity: Annotated[
        float | None, typer.Option(min=0, max=1, help="How far down a repetition of a better one goes.")
    ] = None,
    tag: TagOption = None,
    where: WhereOption = None,
) -> None:
    """Search an agent's memories and those shared with it; each with its date, and the file and line that it is from.

    Example: memrelay-gateway search "which database do we stage on" --agent coder -k 3 --as-of 2026-05-01

    Example: memrelay-gateway search deploy --half-life 30d --diversity 0.3

    Example: memrelay-gateway search lamp --tag shop --where "price<20"
    """
    fields = {
        "include": include,
        "as_of": as_of and _moment(as_of),
        "half_life_days": half_life,
        "diversity": diversity,
        "where": filter_of(tag, where),
    }
    request = built_or_exit(
        lambda: RecallRequest.model_validate(
            {"query": query, "limit": limit, "floor": floor, "include_suspect": True, "rerank": True}
            | {name: value for name, value in fields.items() if value not in (None, [], "")}
        )
    )

    context = run.context
    shares = Shares(shares_path(os.environ), context.holder, legacy=context.settings.namespace.legacy)

    async def recall(client: RelayerClient, identity: Identity) -> RecallResponse:
        own = client.recall(identity, request, deadline=15)
        return await recall_shared(client, own, shares.also_read(identity), request, seconds=15)

    answer = run.ask(recall)
    if isinstance(answer, MergedResponse):
        for reason in answer.unavailable:
            complain(reason, "")
    cited = cited_files(context)
    run.json(told_with_sources(answer, cited))
    if answer.memories:
        run.memories(answer.memories, owners=context.settings.owners, cited=cited)
    elif as_of and not answer.considered:
        run.say(f"Nothing was known to {context.identity.namespace} at that time.")
    elif fields["where"] and not answer.considered:
        run.say(f"No memory of {context.identity.namespace} has these tags and this metadata.")
    else:
        run.nothing_found(context.identity.namespace, answer.considered, show_all="--floor 0")


@command(app, "ask")
def ask_memories(
    run: Run, question: Annotated[str, typer.Argument(help="What the memories should answer.")]
) -> None:
    """Answer a question from an agent's memories, with the memories it rests on.

    Example: memrelay-gateway ask "Where do we deploy on Tuesdays?"
    """
    request = built_or_exit(lambda: AskRequest(question=question))
    answer = run.ask(lambda client, identity: client.ask(identity, request, deadline=60))
    run.json(answer)
    if answer.status == "answered":
        run.say(answer.answer)
        run.memories(answer.citations, owners=run.context.settings.owners)
    else:
        run.say(f"Nothing among {answer.considered} memories tells.")


@command(app, "list")
def list_memories(
    run: Run,
    *,
    limit: Annotated[int, typer.Option(min=1, max=100, help="Maximum number of results.")] = 20,
    cursor: Annotated[str | None, typer.Option(help="From the page before.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind; repeatable.")] = None,
    state: Annotated[list[str] | None, typer.Option(help="live, superseded, forgotten.")] = None,
    sender: SenderOption = None,
    tag: TagOption = None,
    where: WhereOption = None,
) -> None:
    """List an agent's memories, newest first.

    Example: memrelay-gateway list --kind preference --limit 50
    """
    if cursor == "":
        _refuse_cursor()
    wanted, audiences = filter_of(tag, where), audiences_of(sender_ids(sender))
    built_or_exit(lambda: ListRequest(where=wanted, audiences=audiences))

    async def fetch(client: RelayerClient, identity: Identity) -> tuple[str, ListResponse]:
        try:
            return identity.namespace, await client.list_memories(
                identity,
                limit=limit,
                cursor=cursor,
                kinds=kind or (),
                states=state or (),
                audiences=audiences,
                where=wanted,
            )
        except RelayerRefused as error:
            if error.code == "bad_cursor":
                _refuse_cursor()
            raise

    namespace, answer = run.ask(fetch)
    run.json(answer)
    if answer.memories:
        run.memories(
            answer.memories,
            owners=run.context.settings.owners,
            former="superseded" in (state or ()),
        )
    if answer.total:
        run.say(f"{len(answer.memories)} of {answer.total} memories of {namespace}")
    elif wanted or audiences:
        ids = " Ids of senders are source.sender in list --json." if audiences else ""
        run.say(f"No memory of {namespace} passes these filters.{ids}")
    elif kind or state:
        run.say(f"No memory of {namespace} is of this kind and state.")
    else:
        run.nothing_found(namespace, 0)
    if answer.next_cursor:
        run.say(f"next page: --cursor {answer.next_cursor}")


@command(app)
def show(run: Run, memory_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Show one memory and its versions.

    Example: memrelay-gateway show ID --agent coder
    """
    answer = run.ask(lambda client, identity: client.get_memory(identity, memory_id))
    run.json(answer)
    run.memories(
        (answer.memory, *(one for one in answer.history if one.id != answer.memory.id)),
        owners=run.context.settings.owners,
        whole=True,
        former=True,
    )


@command(app)
def forget(run: Run, memory_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Hide a memory from recall; its history stays.

    Example: memrelay-gateway forget ID --agent coder
    """
    answer = run.ask(lambda client, identity: client.forget(identity, memory_id))
    run.tell(answer, f"forgotten: {answer.id}")


@command(app)
def status(run: Run, called: typer.Context) -> None:
    """Show whether the relayer answers, is trusted, and accepts this gateway.

    Example: memrelay-gateway status --url http://127.0.0.1:8787
    """
    context = run.context
    # A host's plugin hands over what its settings say; MemWal's `stats` shows it, too (MW-25).
    own = {"recall": context.settings.recall.enabled, "capture": context.settings.capture.enabled}
    given: Mapping[str, bool] = called.find_root().obj or own
    with open_outbox(context) as file:
        switches = _switches(context, doctor.gateway_toggles(context, file))

    async def check(client: RelayerClient) -> dict[str, str | int]:
        version = await client.version()
        fleet = await client.fleet()
        listed = await client.namespaces(context.identity, limit=1)
        held = await client.list_memories(context.identity, limit=1)
        key = bytes(context.identity.keys.identity.verify_key).hex()
        return {
            "relayer": client.endpoint.origin,
            "version": version.version,
            "model": f"{version.model} ({version.dimension} dimensions)",
            "relayer_identity": fleet.identity.hex(),
            "account": context.identity.account,
            "agent": context.identity.agent,
            "namespace": context.identity.namespace,
            "memories": held.total,
            "key": f"{key[:4]}...{key[-4:]}",
            "memory": switches,
            **{name: "on" if enabled else "off in the host's settings" for name, enabled in given.items()},
            # A page may be empty although there are more.
            "accepted": "yes" if listed.namespaces or listed.next_cursor else "yes, nothing stored yet",
        }

    run.facts(with_client(context.settings, check))


@command(app)
def namespaces(run: Run) -> None:
    """List an agent's namespaces.

    Example: memrelay-gateway namespaces --agent coder
    """
    answer = run.ask(lambda client, identity: client.namespaces(identity))
    run.json(answer)
    if answer.namespaces:
        run.namespaces(answer.namespaces)
    else:
        run.say("no namespaces yet")


@command(app, agent=None, url=None)
def trust(run: Run, url: Annotated[str, typer.Argument(metavar="URL")]) -> None:
    """Accept the identity of the relayer that answers at URL now.

    Example: memrelay-gateway trust https://relayer.example.org
    """
    settings = guarded(lambda: settings_from(None, os.environ, url=url))
    fleet = with_client(settings, lambda client: client.trust())
    identity = fleet.identity.hex()
    run.tell({"url": url, "identity": identity}, f"trusted: {url} is {identity}")
    wanted = os.environ.get(IDENTITY_VARIABLE, "").strip().lower()
    if wanted not in ("", identity):
        complain(f"{IDENTITY_VARIABLE} names another identity, and comes first", "correct it, or unset it")


# Listed in this order by --help: first what is used daily.
app.add_typer(keys, name="keys")
app.add_typer(outbox, name="outbox")
doctor.add_to(app)
for _each in (
    doctor.off, doctor.on, life.edit, life.restore, life.delete, life.consolidate, profile.profile, profile.skills,
    share.share, share.accept, share.unshare, life.erase, life.erasure, transfer.export,
):  # fmt: skip
    app.command()(_each)
app.command("import")(transfer.import_files)
for _each in (transfer.watch, index.index, index.transcript):
    app.command()(_each)
init.add_to(app)
version.add_to(app)
add_extension_commands(app)


def _switches(context: CliContext, toggles: Toggles) -> str:
    agent = context.identity.agent
    if context.settings.disabled:
        return "off: MEMRELAY_DISABLE is set"
    try:
        if not toggles.enabled_everywhere:
            return "off for every session: memrelay-gateway on"
        if toggles.agent_enabled(agent):
            return "on"
        return f"off for agent {agent}: memrelay-gateway on --agent {typed(agent)}"
    except OutboxUnavailable as error:
        return f"silent: {error}"


def _refuse_cursor() -> NoReturn:
    fail(
        USAGE,
        "--cursor: no page of these memories ended there, or the memory that it points to is gone",
        "give what the page before says behind --cursor, or begin again without it",
        kind="bad_cursor",
    )


def _moment(text: str) -> str:
    """Complete a day or a time of this place with its offset."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        fail(USAGE, "--as-of: it is no time", "write 2026-05-01, or 2026-05-01T14:30")
    return (moment if moment.tzinfo else moment.astimezone()).isoformat()
