"""An open namespace answers questions: nobody above it reaches for its log, its view or the records of a state."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from relayer.domain.state import NamespaceState

RELAYER = Path(__file__).parents[3] / "relayer"
ABOVE = ("use_cases", "writing", "jobs", "maintenance", "http", "bootstrap.py", "process.py", "health.py")
BEHIND = {"log", "view", "namespace"}
OF_A_STATE = {field.name for field in fields(NamespaceState)}


def reached(source: str) -> Iterator[str]:
    """Yield what is read through an attribute that belongs to what stands behind it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            behind, wanted = node.value.attr, node.attr
            if behind in BEHIND or (behind == "state" and wanted in OF_A_STATE):
                yield f"{ast.unparse(node)} in line {node.lineno}"


@pytest.mark.parametrize("floor", ABOVE)
def test_nobody_reaches_through_an_open_namespace(floor):
    files = sorted((RELAYER / floor).rglob("*.py")) if floor.isidentifier() else [RELAYER / floor]
    assert files
    assert {file.name: found for file in files if (found := list(reached(file.read_text("utf-8"))))} == {}


@pytest.mark.parametrize(
    "line", ["opened.log.state.records", "opened.view.index.search(1)", "len(opened.namespace.pointer.name)"]
)
def test_reaching_through_is_found(line):
    assert list(reached(line))
