"""Write docs/features.md: which feature is shown by which test, and how far.

A test that shows a feature where a user stands, in a host, on the command line, over HTTP or through the plugin, says
``@pytest.mark.row("CP-13", level="e2e")``; one that shows a part of it says ``@pytest.mark.row("CP-13")``. This program
reads the markers without importing a test and joins them with the titles of docs/feature_rows.tsv and with
docs/feature_gaps.tsv, which says what a row still lacks. A row is

    end to end    a test of level e2e shows it, which was seen to run, and no gap stands for it
    not recorded  a test of level e2e is there, and tests/row_records.json does not have it as it is now
    in part       a test shows something of it, and its gap says what is missing
    not yet       no test shows it; its gap says why

    python tests/features.py --write    write docs/features.md
    python tests/features.py --check    fail when it is out of date, or when markers, rows and gaps do not fit

That a test of level e2e reaches such a surface at all is seen when it is collected, and what it drove when it runs:
tests/row_levels.py, which writes tests/row_records.json. A test that was changed since does not count until it ran again.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

__all__ = [
    "Feature",
    "FeatureError",
    "Proof",
    "State",
    "main",
    "proofs_of",
    "read_features",
    "read_gaps",
    "render",
    "state_of",
]

ROOT = Path(__file__).resolve().parent.parent
FEATURES = ROOT / "docs" / "feature_rows.tsv"
GAPS = ROOT / "docs" / "feature_gaps.tsv"
PAGE = ROOT / "docs" / "features.md"
RECORDS = ROOT / "tests" / "row_records.json"
HEADER = ("id", "place", "title")
GAPS_HEADER = ("id", "missing")
PLACES = {
    "plugin": "the plugin's core",
    "openclaw": "the OpenClaw adapter",
    "relayer": "the relayer",
    "cli": "the command line",
    "docs": "the documentation",
}
SYSTEMS = {
    "CP": "memory-core-plus",
    "AR": "openclaw-auto-recall",
    "MW": "MemWal: plugin, relayer, SDKs, MCP",
    "MS": "memsearch",
    "AM": "active-memory",
    "OC": "OpenClaw's own memory, and who hears what",
}
_Mark = tuple[str, bool]
_Definition = ast.FunctionDef | ast.AsyncFunctionDef


class FeatureError(Exception):
    """Raised when the rows or a marker cannot be used; the message says where."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One row: its id, the part of the product it belongs to (a key of `PLACES`), and what it is."""

    id: str
    place: str
    title: str


@dataclass(frozen=True, slots=True)
class Proof:
    """A test that says it proves a feature; ``test`` is ``path::name``, ``whole`` whether its level is e2e.

    ``seen`` says whether a run of the test as it is now was recorded.
    """

    feature: str
    test: str
    whole: bool = False
    seen: bool = True


class State(StrEnum):
    """How far a feature is shown."""

    END_TO_END = "end to end"
    NOT_RECORDED = "not recorded"
    IN_PART = "in part"
    NOT_YET = "not yet"


def read_features(text: str) -> list[Feature]:
    """Parse the rows; raises `FeatureError` on a wrong header, place or system, a missing field or a repeated id."""
    features = []
    for number, fields in _table(text, HEADER):
        feature = Feature(*fields)
        if feature.place not in PLACES or feature.id.split("-")[0] not in SYSTEMS:
            raise FeatureError(f"line {number} names an unknown place or system")
        features.append(feature)
    return features


def read_gaps(text: str) -> dict[str, str]:
    """Parse what rows lack, by id; raises `FeatureError` on a wrong header, a missing field or a repeated id."""
    return {row: missing for _, (row, missing) in _table(text, GAPS_HEADER)}


def _table(text: str, header: tuple[str, ...]) -> list[tuple[int, list[str]]]:
    """Return the lines below the header with their numbers; their first fields are ids."""
    lines = text.splitlines()
    if not lines or tuple(lines[0].split("\t")) != header:
        raise FeatureError(f"the first line must be {' <tab> '.join(header)}")
    found = []
    for number, line in enumerate(lines[1:], 2):
        fields = line.split("\t")
        if len(fields) != len(header) or not all(fields):
            raise FeatureError(f"line {number} must have {len(header)} fields")
        found.append((number, fields))
    repeated = [name for name, count in Counter(fields[0] for _, fields in found).items() if count > 1]
    if repeated:
        raise FeatureError(f"repeated: {', '.join(repeated)}")
    return found


def proofs_of(source: str, path: str) -> list[Proof]:
    """Return the proofs in one test file.

    Raises:
        FeatureError: a marker whose argument is not a string, whose level is none, or that stands where no test
            carries it.
    """
    tree = ast.parse(source, path)
    found = list(_of_body(tree.body, path, "", _module_marks(tree, path)))
    counted = sum(1 for node in ast.walk(tree) if _is_marker(node))
    carried = len({id(node) for node in _carried(tree)})
    if counted != carried:
        raise FeatureError(f"{path}: a row marker stands where no test carries it")
    return sorted(set(found), key=lambda proof: (proof.feature, proof.test))


def digests_of(source: str) -> dict[str, str]:
    """Return a digest of each test of a file, which changes when its code does, by its name with those of its classes."""

    def tests(body: Sequence[ast.stmt], owner: str) -> Iterator[tuple[str, str]]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from tests(node.body, f"{owner}{node.name}::")
            elif isinstance(node, _Definition) and node.name.startswith("test"):
                yield f"{owner}{node.name}", hashlib.sha256(ast.unparse(node).encode()).hexdigest()[:12]

    return dict(tests(ast.parse(source).body, ""))


def _of_body(
    body: Sequence[ast.stmt], path: str, owner: str, inherited: tuple[_Mark, ...]
) -> Iterator[Proof]:
    for node in body:
        if isinstance(node, _Definition) and node.name.startswith("test"):
            for feature, whole in (*inherited, *_marks(node.decorator_list, path)):
                yield Proof(feature, f"{path}::{owner}{node.name}", whole)
        elif isinstance(node, ast.ClassDef):
            marks = (*inherited, *_marks(node.decorator_list, path))
            yield from _of_body(node.body, path, f"{owner}{node.name}::", marks)


def _carried(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the markers that `_of_body` looks at."""
    for node in ast.walk(tree):
        roots: Sequence[ast.AST] = ()
        if isinstance(node, ast.ClassDef) or (isinstance(node, _Definition) and node.name.startswith("test")):
            roots = node.decorator_list
        elif isinstance(node, ast.Assign) and node in tree.body and _is_pytestmark(node):
            roots = (node.value,)
        for root in roots:
            yield from filter(_is_marker, ast.walk(root))


def _module_marks(tree: ast.Module, path: str) -> tuple[_Mark, ...]:
    values = [node.value for node in tree.body if isinstance(node, ast.Assign) and _is_pytestmark(node)]
    return _marks(values, path)


def _is_pytestmark(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)


def _is_marker(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.row"


def _marks(roots: Sequence[ast.expr], path: str) -> tuple[_Mark, ...]:
    marks: list[_Mark] = []
    for root in roots:
        for node in ast.walk(root):
            if isinstance(node, ast.Call) and _is_marker(node):
                whole = _is_whole(node, path)
                for argument in node.args:
                    if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                        raise FeatureError(f"{path}:{node.lineno}: a row marker takes ids as plain strings")
                    marks.append((argument.value, whole))
    return tuple(marks)


def _is_whole(marker: ast.Call, path: str) -> bool:
    for keyword in marker.keywords:
        if keyword.arg != "level" or ast.unparse(keyword.value) != "'e2e'":
            raise FeatureError(
                f'{path}:{marker.lineno}: besides ids a row marker takes level="e2e" and nothing else'
            )
    return bool(marker.keywords)


def collect(root: Path, records: Mapping[str, Mapping[str, object]]) -> list[Proof]:
    """Return the proofs of all test files below ``root/tests``, and which of them were seen to run."""
    proofs = []
    for file in sorted((root / "tests").rglob("test_*.py")):
        source, path = file.read_text(encoding="utf-8"), file.relative_to(root).as_posix()
        texts = {f"{path}::{name}": digest for name, digest in digests_of(source).items()}
        for proof in proofs_of(source, path):
            seen = records.get(proof.test, {}).get("text") == texts[proof.test]
            proofs.append(replace(proof, seen=seen))
    return proofs


_UNSHOWN = frozenset({State.IN_PART, State.NOT_YET})


def state_of(feature: str, proofs: Sequence[Proof], gaps: Mapping[str, str]) -> State:
    """Return how far ``proofs``, all of this feature, show it."""
    if not proofs:
        return State.NOT_YET
    whole = [proof for proof in proofs if proof.whole]
    if not whole or feature in gaps:
        return State.IN_PART
    return State.END_TO_END if any(proof.seen for proof in whole) else State.NOT_RECORDED


def render(features: Sequence[Feature], proofs: Sequence[Proof], gaps: Mapping[str, str]) -> str:
    """Return the page; raises `FeatureError` when rows, proofs and gaps do not fit."""
    by_feature: defaultdict[str, list[Proof]] = defaultdict(list)
    for proof in proofs:
        by_feature[proof.feature].append(proof)
    _refuse_unknown(features, by_feature, gaps)
    states = {one.id: state_of(one.id, by_feature[one.id], gaps) for one in features}
    if unsaid := [row for row, state in states.items() if state in _UNSHOWN and row not in gaps]:
        raise FeatureError(
            f"no test of level e2e shows {', '.join(unsaid)}: "
            'add level="e2e" where one does, or say in docs/feature_gaps.tsv what is missing'
        )
    lines = [
        "# Features",
        "",
        "What five existing systems and OpenClaw offer, row by row, and the tests that show it here. *End to end*: a test in",
        "bold checks it as a user sees it: in a host, on the command line, over HTTP or through the plugin, and passed in a",
        "recorded run. *Not recorded*: there is such a test, and no run of it as it is now was recorded (`--record`). *In part*:",
        "tests show a part of it, and the row says what is missing. *Not yet*: nothing shows it. Written by",
        '`make features` from the `@pytest.mark.row("...")` markers of the tests, the titles of `feature_rows.tsv` and',
        "what is missing, `feature_gaps.tsv`; do not edit.",
        "",
        f"**{list(states.values()).count(State.END_TO_END)} of {len(features)} rows are shown end to end.**",
        "",
        *_counts(states),
    ]
    for system, title in SYSTEMS.items():
        rows = [feature for feature in features if feature.id.startswith(f"{system}-")]
        if rows:
            lines += [
                "",
                f"## {title} ({system})",
                "",
                "| row | feature | state | shown by |",
                "|---|---|---|---|",
            ]
            lines += [_line(feature, states[feature.id], by_feature[feature.id], gaps) for feature in rows]
    return "\n".join(lines) + "\n"


def _refuse_unknown(
    features: Sequence[Feature], by_feature: Mapping[str, Sequence[Proof]], gaps: Mapping[str, str]
) -> None:
    known = {feature.id for feature in features}
    if unknown := sorted(set(by_feature) - known):
        where = ", ".join(f"{name} ({by_feature[name][0].test})" for name in unknown)
        raise FeatureError(f"markers that name no feature of docs/feature_rows.tsv: {where}")
    if unknown := sorted(set(gaps) - known):
        raise FeatureError(
            f"docs/feature_gaps.tsv names no feature of docs/feature_rows.tsv: {', '.join(unknown)}"
        )


def _counts(states: Mapping[str, State]) -> list[str]:
    lines = [f"| system | rows | {' | '.join(State)} |", "|---|---|---|---|---|---|"]
    for system, title in SYSTEMS.items():
        found = [state for row, state in states.items() if row.startswith(f"{system}-")]
        counts = " | ".join(str(found.count(state)) for state in State)
        lines.append(f"| {title} ({system}) | {len(found)} | {counts} |")
    return lines


def _line(feature: Feature, state: State, proofs: Sequence[Proof], gaps: Mapping[str, str]) -> str:
    shown = {
        proof.test: f"**`{proof.test}`**" if proof.whole and proof.seen else f"`{proof.test}`"
        for proof in _best(proofs)
    }
    missing = [f"missing: {gaps[feature.id]}"] if feature.id in gaps else []
    return f"| {feature.id} | {feature.title} | {state} | {'<br>'.join([*missing, *shown.values()])} |"


def _best(proofs: Sequence[Proof]) -> list[Proof]:
    """Sort by test; of a test with two markers the one that says more comes last."""
    return sorted(proofs, key=lambda proof: (proof.test, proof.whole))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description="Write or check docs/features.md.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write docs/features.md")
    action.add_argument("--check", action="store_true", help="fail when docs/features.md is out of date")
    chosen = parser.parse_args(arguments)
    try:
        features = read_features(FEATURES.read_text(encoding="utf-8"))
        records = json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else {}
        gaps, proofs = read_gaps(GAPS.read_text(encoding="utf-8")), collect(ROOT, records)
        page = render(features, proofs, gaps)
    except (FeatureError, SyntaxError) as error:
        print(f"features: {error}", file=sys.stderr)
        return 1
    if chosen.write:
        PAGE.write_text(page, encoding="utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")
        if doubtful := sorted({proof.feature for proof in proofs if proof.whole} & set(gaps)):
            print(f"shown by a test of level e2e, and yet in docs/feature_gaps.tsv: {', '.join(doubtful)}")
        return 0
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
        print("docs/features.md is out of date: run `make features` and commit the result", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
