"""The examples in docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("relayer", "gateway_plugin", "memrelay")
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for top in SOURCES
    for path in (ROOT / top).rglob("*.py")
    if re.search(r"^ +>>> ", path.read_text("utf-8"), re.MULTILINE)
)


@pytest.mark.parametrize("name", MODULES)
def test_every_example_prints_what_its_docstring_says(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    assert result.attempted > 0, "the module has an example that doctest does not find"
    assert result.failed == 0


def test_an_example_that_prints_something_else_is_noticed() -> None:
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert doctest.DocTestRunner(verbose=False).run(wrong, out=lambda _: None).failed == 1
