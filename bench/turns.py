"""What a host waits for: a new question through the plugin, and a sentence said until it is durable; beside a commit, if one is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.against import tree_of
from bench.http_servers import Server, started
from bench.material import queries, sentences
from bench.report import Lab, Section
from bench.stats import percentile

__all__ = ["lived_turns"]

_ROUNDS = 5
_SCRIPT = Path(__file__).with_name("plugin_turns.py")


@dataclass(frozen=True, slots=True)
class _Side:
    """A relayer and a plugin of one tree."""

    name: str
    server: Server
    tree: Path
    home: Path

    def turns(self, count: int, seed: int) -> dict[str, dict[str, list[float]]]:
        command = [sys.executable, str(_SCRIPT), self.server.url, str(self.home)]
        environment = os.environ | {"PYTHONPATH": str(self.tree)}
        texts = json.dumps({"asked": queries(count, seed), "said": sentences(count, seed)})
        ended = subprocess.run(
            command, env=environment, check=True, input=texts, stdout=subprocess.PIPE, text=True
        )
        found: dict[str, dict[str, list[float]]] = json.loads(ended.stdout)
        return found


async def lived_turns(lab: Lab) -> list[Section]:
    """Measure turns of this tree, and of ``lab.against`` in the same rounds."""
    here = Path(__file__).parent.parent
    found: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack:
        trees = {"this tree": here}
        if lab.against is not None:
            trees[lab.against] = stack.enter_context(tree_of(lab.against, lab.work / "turns-tree"))
        sides = []
        for number, (name, tree) in enumerate(trees.items()):
            work = lab.work / f"turns-{number}"
            arguments = ["serve", "--port", "0", "--data", str(work / "data"), "--rate-limits", "off"]
            server = stack.enter_context(started("relayer", arguments, work, tree=tree))
            sides.append(_Side(name, server, tree, work / "home"))
        for number in range(lab.count(_ROUNDS, 1)):
            for side in sides if number % 2 else reversed(sides):
                lab.say(f"turns of {side.name}: round {number + 1}")
                for what, samples in side.turns(lab.count(65, 10), number).items():
                    for unit, values in samples.items():
                        found[what, side.name][unit] += values
    return [_section(found)]


def _section(found: dict[tuple[str, str], dict[str, list[float]]]) -> Section:
    rows = [
        (
            what,
            name,
            *(f"{percentile(samples['seconds'], share) * 1e3:.1f}" for share in (0.5, 0.95)),
            f"{percentile(samples['cpu'], 0.5) * 1e3:.2f}",
        )
        for (what, name), samples in sorted(found.items())
    ]
    return Section(
        "A turn as a host waits for it",
        ("turn", "of", "p50 ms", "p95", "CPU ms of the plugin, p50"),
        rows,
        {f"{what}, {name}": samples for (what, name), samples in found.items()},
        (
            "plugin and relayer at default settings (but for rate limits), on one machine, with its embedding model.",
        ),
    )
