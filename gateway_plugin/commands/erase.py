"""``memrelay-gateway erase`` and ``erasure``: erase a memory or a namespace, and show the progress of an erasure."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from gateway_plugin.client import RelayerClient
from gateway_plugin.commands.run import (
    CliContext,
    Output,
    Run,
    command,
    open_outbox,
    root_holder,
    with_client,
)
from gateway_plugin.errors import RelayerRefused
from gateway_plugin.keys.identity import Identity, NamespaceRef, RootHolder
from gateway_plugin.outbox.erasing import erase_texts, forget_namespace
from relayer.wire.command_line import FAILED, USAGE, fail
from relayer.wire.memories import EraseNamespaceResponse, ErasureView

_STATES = {
    "erased": "no longer recalled; the relayer is now deleting the stored objects",
    "destroyed": "removed from the store; the final check follows in about an hour",
    "confirmed": "nothing is left in the store, including older versions",
}


@command()
def erase(
    run: Run,
    memory_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="One memory.")] = None,
    *,
    whole: Annotated[bool, typer.Option("--namespace", help="Erase all memories of the agent.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Erase; without this option, only show what would be erased.")
    ] = False,
) -> None:
    """Destroy a memory, every version of it and what was made of it, or a whole namespace. It cannot be undone.

    Example: memrelay-gateway erase ID --yes

    Example: memrelay-gateway erase --namespace --agent coder --yes
    """
    if whole == (memory_id is not None):
        fail(USAGE, "give either ID or --namespace", "memrelay-gateway erase ID")
    context = _as_a_person(run.context)
    if memory_id is None:
        _erase_namespace(run, context, yes=yes)
    else:
        _erase_memory(run, context, memory_id, yes=yes)


@command()
def erasure(
    run: Run, erasure_id: Annotated[str, typer.Argument(metavar="ID", help="The id that `erase` printed.")]
) -> None:
    """Show how far an erasure is.

    Example: memrelay-gateway erasure ID
    """
    context = run.context
    if isinstance(context.holder, RootHolder):
        # The agent's own keys may have been revoked before its memories were erased.
        context = _as_a_person(context)
    view = with_client(context.settings, lambda client: client.erasure(context.identity, erasure_id))
    run.json(view)
    _show(run, view)


def _as_a_person(context: CliContext) -> CliContext:
    holder = root_holder(context, "erasing", instead="memrelay-gateway forget ID")
    return replace(context, identity=holder.person(context.identity.agent, context.identity.namespace))


def _erase_memory(run: Run, context: CliContext, memory_id: str, *, yes: bool) -> None:
    texts = with_client(
        context.settings, lambda client: _texts(client, context.identity, memory_id, must_exist=not yes)
    )
    if not yes:
        shown = "\n".join(f"  {text}" for text in texts)
        run.tell(
            {"dry_run": True, "namespace": context.identity.namespace, "id": memory_id, "texts": texts},
            f"would be erased, together with everything derived from it:\n{shown}\ndo it: --yes",
        )
        return
    answer = with_client(context.settings, lambda client: client.erase(context.identity, memory_id))
    with open_outbox(context) as outbox:
        waiting = erase_texts(outbox, context.identity.namespace, texts)
    if answer.erasure is None:
        fail(FAILED, "the relayer sent no report: it is older than this gateway", "")
    _print(run, answer.erasure, waiting)


async def _texts(client: RelayerClient, identity: Identity, memory_id: str, *, must_exist: bool) -> list[str]:
    try:
        found = await client.get_memory(identity, memory_id)
    except RelayerRefused as error:
        if error.code != "not_found" or must_exist:
            raise
        return []  # erased before; erasing it again is allowed
    return list(dict.fromkeys(one.text for one in (found.memory, *found.history)))


def _erase_namespace(run: Run, context: CliContext, *, yes: bool) -> None:
    identity = context.identity

    async def work(client: RelayerClient) -> EraseNamespaceResponse:
        counted = await client.erase_namespace(identity)
        return await client.erase_namespace(identity, confirm=counted.confirm) if yes else counted

    answer = with_client(context.settings, work)
    if answer.erasure is None:
        many = "what it holds cannot be read" if answer.memories is None else f"{answer.memories} memories"
        said = f"would be erased: namespace {answer.namespace}, {many}\ndo it: --yes"
        run.tell(answer, said)
        return
    whose = NamespaceRef(identity.namespace.partition("/")[0], identity.namespace, identity.generation)
    with open_outbox(context) as outbox:
        waiting = forget_namespace(outbox, whose)
    _print(run, answer.erasure, waiting)


def _print(run: Run, view: ErasureView, waiting: int) -> None:
    run.json({**view.model_dump(mode="json"), "waiting_turns": waiting})
    _show(run, view)
    if waiting:
        run.say(f"undelivered turns that are also erased: {waiting}")
    if view.state != "confirmed":
        run.say(f"check the progress with: memrelay-gateway erasure {view.id}")


def _show(output: Output, view: ErasureView) -> None:
    what = f"namespace {view.namespace}" if view.what == "namespace" else f"{len(view.memories)} memories"
    derived = f" and {len(view.derived)} made of them" if view.derived else ""
    output.say(f"{view.state}: {what}{derived}; {_STATES[view.state]}")
