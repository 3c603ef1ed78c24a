"""``memrelay-gateway skills``: show ways of working that the user told several times, or write them as skills."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from gateway_plugin.client import RelayerClient
from gateway_plugin.commands.run import Run, command
from gateway_plugin.files.skill_files import Skill
from gateway_plugin.files.skills import draw_skills, write_skills
from gateway_plugin.keys.identity import Identity
from relayer.wire.command_line import complain


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
        for line in _lines(skill):
            run.say(line)
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


def _lines(skill: Skill) -> Iterator[str]:
    for memory, (day, text) in skill.lines.items():
        yield f"  {day}  {text}  {memory}"
