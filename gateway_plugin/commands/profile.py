"""``memrelay-gateway profile`` and ``skills``: show what is known of the user, or keep it in files that a host gives its model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gateway_plugin.client import RelayerClient
from gateway_plugin.commands.run import Run, command, guarded, with_client
from gateway_plugin.files.blocks import Skill, put_profile
from gateway_plugin.files.skills import draw_skills, write_skills
from gateway_plugin.keys.identity import Identity
from gateway_plugin.recall.formatting import harmless_profile, standing_block
from gateway_plugin.recall.recaller import STANDING_TOKENS
from gateway_plugin.turn.gates import Hearing
from relayer.wire.command_line import USAGE, complain, fail
from relayer.wire.service import SECTIONS

_AUDIENCES = ("agent", "direct", "group")
_TRUSTS = ("user", "imported", "assistant", "tool")


@command()
def profile(
    run: Run,
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the profile to this file, such as USER.md."),
    ] = None,
    audience: Annotated[
        list[str] | None,
        typer.Option(
            help="agent, direct or group; default: agent, and your own words in groups, but nothing from direct messages."
        ),
    ] = None,
    trust: Annotated[
        list[str] | None, typer.Option(help="user, imported, assistant or tool; default: user and imported.")
    ] = None,
    section: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(SECTIONS)}; repeatable, default: all.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, max=20_000, help="Maximum length.")] = 1000,
    standing: Annotated[
        bool,
        typer.Option("--standing", help="Show the standing block that is part of every prompt of a session."),
    ] = False,
) -> None:
    """Show what is known of the user and their work; --out keeps it in a file, whose other lines stay.

    Example: memrelay-gateway profile --agent coder --out USER.md
    """
    if standing:
        if out is not None or audience or trust or section:
            fix = "remove --out, --audience, --trust and --section"
            fail(USAGE, "--standing cannot be combined with other options", fix)
        _show_standing(run)
        return
    trusts = _names("--trust", trust or ["user", "imported"], _TRUSTS)
    named = _names("--section", section or [*SECTIONS], tuple(SECTIONS))
    context = run.context
    # Memories of what other people said in a group do not belong in a profile.
    shown = Hearing.of_owner(context.settings.owners, "").lasting
    own = tuple(one for one in shown if not one.startswith("direct"))
    audiences = _names("--audience", audience, _AUDIENCES) if audience else own
    answer = with_client(
        context.settings,
        lambda client: client.profile(
            context.identity, max_tokens=max_tokens, audiences=audiences, trusts=trusts
        ),
    )
    told = harmless_profile(answer, audiences, trusts, named)
    written = out is not None and guarded(lambda: put_profile(out, context.identity.namespace, told.document))
    file = {} if out is None else {"file": str(out), "written": written}
    run.json(told.model_dump(mode="json") | file)
    if out is not None:
        done = "written" if written else "unchanged"
        run.say(f"{done}: {out}, {told.shown} of {told.total} memories")
    elif told.document:
        run.raw(told.document.removesuffix("\n"))
    elif not run.as_json:
        direct = "" if audience else "direct chats are left out; add them with --audience direct, or "
        complain("no memories match these options", f"{direct}see: memrelay-gateway list")


def _show_standing(run: Run) -> None:
    audiences = Hearing.of_owner(run.context.settings.owners, "").standing
    answer = run.ask(lambda client, identity: client.standing(identity, audiences=audiences))
    block = standing_block(answer.lines, STANDING_TOKENS, audiences)
    run.json({"text": block.text, "lines": [line.model_dump(mode="json") for line in block.lines]})
    if block.text:
        run.raw(block.text)
    elif not run.as_json:
        complain("nothing is stored about this yet", "see: memrelay-gateway list")


def _names(option: str, given: list[str], known: tuple[str, ...]) -> tuple[str, ...]:
    if not set(given) <= set(known):
        fail(USAGE, f"{option}: unknown value", ", ".join(known))
    # In a fixed order and without duplicates, so that the same options always give the same request.
    return tuple(name for name in known if name in given)


@command()
def skills(
    run: Run,
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write each into a folder below this one, such as skills."),
    ] = None,
    least: Annotated[
        int, typer.Option(min=2, max=100, help="How often a way of working must have been told.")
    ] = 3,
) -> None:
    """Show ways of working that you told at least three times; --out writes them as skills, whose other lines stay.

    Example: memrelay-gateway skills --agent coder --out skills
    """

    async def draw(client: RelayerClient, identity: Identity) -> list[tuple[str, Skill]]:
        if out is None:
            return [(skill.slug, skill) for skill in await draw_skills(client, identity, least)]
        return [*(await write_skills(client, identity, out.resolve(), least)).items()]

    found = run.ask(draw)
    run.json({"skills": [_document(name, skill) for name, skill in found], "out": out and str(out)})
    for name, skill in found:
        run.say(f"{name}  {skill.times} times")
        for memory, (day, text) in skill.lines.items():
            run.say(f"  {day}  {text}  {memory}")
    if out is not None:
        run.say(f"written: {len(found)} to {out}")
    elif not run.as_json:
        if found:
            run.say("nothing was written; write them with: memrelay-gateway skills --out DIR")
        else:
            complain(
                f"no way of working was told {least} times yet",
                "what is told in one session of a day counts once; see: memrelay-gateway list",
            )


def _document(name: str, skill: Skill) -> dict[str, object]:
    memories = [{"id": one, "day": day, "text": text} for one, (day, text) in skill.lines.items()]
    return {"name": name, "about": skill.words, "times": skill.times, "memories": memories}
