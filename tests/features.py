"""Write docs/features.md: which feature is shown by which test.

A test says that it proves a feature with ``@pytest.mark.row("CP-13")``. This program reads the markers without
importing a test, joins them with the titles of docs/feature_rows.tsv, and writes the table.

    python tests/features.py --write    write docs/features.md
    python tests/features.py --check    fail when it is out of date, or a marker names no feature
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Feature", "FeatureError", "Proof", "main", "proofs_of", "read_features", "render"]

ROOT = Path(__file__).resolve().parent.parent
FEATURES = ROOT / "docs" / "feature_rows.tsv"
PAGE = ROOT / "docs" / "features.md"
HEADER = ("id", "place", "title")
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
}
_FRONT = "the front that is compatible with MemWal is not built"
_MCP = "the MCP server is not built"
REASONS = {
    "MW-37": _FRONT,
    "MW-38": _FRONT,
    "MW-44": _FRONT,
    "MW-45": _FRONT,
    "MW-46": _MCP,
    "MW-47": _MCP,
    "MW-48": _MCP,
}
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
    """A test that says it proves a feature; ``test`` is ``path::name``."""

    feature: str
    test: str


def read_features(text: str) -> list[Feature]:
    """Parse the rows; raises `FeatureError` on a wrong header, place or system, a missing field or a repeated id."""
    lines = text.splitlines()
    if not lines or tuple(lines[0].split("\t")) != HEADER:
        raise FeatureError(f"the first line must be {' <tab> '.join(HEADER)}")
    features = []
    for number, line in enumerate(lines[1:], 2):
        fields = line.split("\t")
        if len(fields) != len(HEADER) or not all(fields):
            raise FeatureError(f"line {number} must have {len(HEADER)} fields")
        feature = Feature(*fields)
        if feature.place not in PLACES or feature.id.split("-")[0] not in SYSTEMS:
            raise FeatureError(f"line {number} names an unknown place or system")
        features.append(feature)
    repeated = [name for name, count in Counter(feature.id for feature in features).items() if count > 1]
    if repeated:
        raise FeatureError(f"repeated: {', '.join(repeated)}")
    return features


def proofs_of(source: str, path: str) -> list[Proof]:
    """Return the proofs in one test file.

    Raises:
        FeatureError: a marker whose argument is not a string, or that stands where no test carries it.
    """
    tree = ast.parse(source, path)
    found = list(_of_body(tree.body, path, "", _module_marks(tree, path)))
    counted = sum(1 for node in ast.walk(tree) if _is_marker(node))
    carried = len({id(node) for node in _carried(tree)})
    if counted != carried:
        raise FeatureError(f"{path}: a row marker stands where no test carries it")
    return sorted(set(found), key=lambda proof: (proof.feature, proof.test))


def _of_body(body: Sequence[ast.stmt], path: str, owner: str, inherited: tuple[str, ...]) -> Iterator[Proof]:
    for node in body:
        if isinstance(node, _Definition) and node.name.startswith("test"):
            for feature in (*inherited, *_marks(node.decorator_list, path)):
                yield Proof(feature, f"{path}::{owner}{node.name}")
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


def _module_marks(tree: ast.Module, path: str) -> tuple[str, ...]:
    values = [node.value for node in tree.body if isinstance(node, ast.Assign) and _is_pytestmark(node)]
    return _marks(values, path)


def _is_pytestmark(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)


def _is_marker(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.row"


def _marks(roots: Sequence[ast.expr], path: str) -> tuple[str, ...]:
    marks: list[str] = []
    for root in roots:
        for node in ast.walk(root):
            if isinstance(node, ast.Call) and _is_marker(node):
                for argument in node.args:
                    if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                        raise FeatureError(f"{path}:{node.lineno}: a row marker takes ids as plain strings")
                    marks.append(argument.value)
    return tuple(marks)


def collect(root: Path) -> list[Proof]:
    """Return the proofs of all test files below ``root/tests``."""
    proofs = []
    for file in sorted((root / "tests").rglob("test_*.py")):
        proofs += proofs_of(file.read_text(encoding="utf-8"), file.relative_to(root).as_posix())
    return proofs


def render(features: Sequence[Feature], proofs: Sequence[Proof]) -> str:
    """Return the page; raises `FeatureError` when a proof names no feature."""
    by_feature: defaultdict[str, list[str]] = defaultdict(list)
    for proof in proofs:
        by_feature[proof.feature].append(proof.test)
    unknown = sorted(set(by_feature) - {feature.id for feature in features})
    if unknown:
        where = ", ".join(f"{name} ({by_feature[name][0]})" for name in unknown)
        raise FeatureError(f"markers that name no feature of docs/feature_rows.tsv: {where}")
    shown = sum(feature.id in by_feature for feature in features)
    lines = [
        "# Features",
        "",
        "What five existing systems offer, row by row, and the tests that show it here. A row without a test is",
        "listed as *not yet*, with the reason. Written by `make features` from the",
        '`@pytest.mark.row("...")` markers of the tests and the titles of `feature_rows.tsv`; do not edit.',
        "",
        f"**{shown} of {len(features)} rows are shown by a test.**",
        "",
        *_counts(features, by_feature),
    ]
    for system, title in SYSTEMS.items():
        rows = [feature for feature in features if feature.id.startswith(f"{system}-")]
        if rows:
            lines += ["", f"## {title} ({system})", "", "| row | feature | shown by |", "|---|---|---|"]
            lines += [_line(feature, by_feature.get(feature.id, [])) for feature in rows]
    return "\n".join(lines) + "\n"


def _counts(features: Sequence[Feature], by_feature: Mapping[str, Sequence[str]]) -> list[str]:
    lines = ["| system | rows | shown | not yet |", "|---|---|---|---|"]
    for system, title in SYSTEMS.items():
        rows = [feature.id for feature in features if feature.id.startswith(f"{system}-")]
        shown = sum(row in by_feature for row in rows)
        lines.append(f"| {title} ({system}) | {len(rows)} | {shown} | {len(rows) - shown} |")
    return lines


def _line(feature: Feature, tests: Sequence[str]) -> str:
    shown = (
        "<br>".join(f"`{test}`" for test in sorted(tests))
        or f"not yet: {REASONS.get(feature.id) or PLACES[feature.place]}"
    )
    return f"| {feature.id} | {feature.title} | {shown} |"


def _refuse_unexplained(features: Sequence[Feature], proofs: Sequence[Proof]) -> None:
    shown = {proof.feature for proof in proofs}
    if silent := [feature.id for feature in features if feature.id not in shown | REASONS.keys()]:
        raise FeatureError(f"rows without a test and without a reason in REASONS: {', '.join(silent)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description="Write or check docs/features.md.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write docs/features.md")
    action.add_argument("--check", action="store_true", help="fail when docs/features.md is out of date")
    chosen = parser.parse_args(arguments)
    try:
        features, proofs = read_features(FEATURES.read_text(encoding="utf-8")), collect(ROOT)
        page = render(features, proofs)
        _refuse_unexplained(features, proofs)
    except (FeatureError, SyntaxError) as error:
        print(f"features: {error}", file=sys.stderr)
        return 1
    if chosen.write:
        PAGE.write_text(page, encoding="utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")
        return 0
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
        print("docs/features.md is out of date: run `make features` and commit the result", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
