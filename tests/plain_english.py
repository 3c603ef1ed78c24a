"""Check the English of the code and the pages: words, docstrings, names and commit subjects.

The words that this project does not use, each with its replacement, are in ``tests/plain_words.tsv``. A word may be used
where it is a quotation, or the only one that is right: ``tests/plain_words_allowed.tsv`` lists these places with the reason.

    python tests/plain_english.py                     the tree, as in `make check`
    python tests/plain_english.py --subject FILE      a commit message, as in the commit-msg hook
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORDS = Path(__file__).with_name("plain_words.tsv")
ALLOWED = Path(__file__).with_name("plain_words_allowed.tsv")
SOURCES = ("relayer", "gateway_plugin", "memrelay")
# Written by `make features`; the rows quote what others promise.
GENERATED = {"docs/features.md"}
SHORTEST_NAME = 3
LONGEST_SUBJECT = 72
_RELATIVE = re.compile(r"(What|Whatever|Whether|How|Where|Who|Whoever|Whose|Whom)\b")
_SUBJECT = re.compile(r"(?:fixup! |squash! )?[a-z0-9][a-z0-9 ,./_-]*: \S")
_REVERT = re.compile(r'Revert "')


def rows(table: Path) -> list[list[str]]:
    """Return the rows of a table of tab-separated values, without blank lines and comments."""
    lines = table.read_text("utf-8").splitlines()
    return [line.split("\t") for line in lines if line.strip() and not line.startswith("#")]


def replacements() -> dict[str, str]:
    """Return the word to use instead for each word that is refused."""
    return dict(rows(WORDS))


def allowed() -> set[tuple[str, str]]:
    """Return the pairs of path and word that are allowed, each for a reason that the table states."""
    return {(path, word) for path, word, _reason in rows(ALLOWED)}


def refused_words(
    name: str, text: str, instead: dict[str, str], exceptions: set[tuple[str, str]]
) -> Iterator[str]:
    """Yield a complaint for each refused word in a text, with its line and its replacement."""
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, instead)) + r")\b", re.IGNORECASE)
    for number, line in enumerate(text.splitlines(), 1):
        for match in pattern.finditer(line):
            word = match.group().lower()
            if (name, word) not in exceptions:
                yield f"{name}:{number}: write {instead[word]!r} for {word!r}"


def docstrings_and_names(
    name: str, source: str, exceptions: frozenset[tuple[str, str]] | set[tuple[str, str]] = frozenset()
) -> Iterator[str]:
    """Yield a complaint for each docstring that begins with a relative clause, and for each public name that is too short."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        doc = ast.get_docstring(node) or ""
        line = getattr(node, "lineno", 1)
        if found := _RELATIVE.match(doc):
            yield f"{name}:{line}: begin the docstring with a verb or a noun, not with {found.group()!r}"
        if isinstance(node, ast.Module) or node.name.startswith("_"):
            continue
        if len(node.name) < SHORTEST_NAME and (name, node.name) not in exceptions:
            yield f"{name}:{line}: {node.name!r} is too short for a public name: use at least {SHORTEST_NAME} characters"


def subject_complaints(message: str) -> Iterator[str]:
    """Yield a complaint for a commit message whose subject is not ``area: change`` in 72 characters.

    Example:
        >>> list(subject_complaints("search: do not rebuild empty indexes"))
        []
        >>> list(subject_complaints("Fix stuff"))
        ["the subject is not 'area: change': 'Fix stuff'"]
    """
    subject = message.splitlines()[0] if message.strip() else ""
    if not _SUBJECT.match(subject) and not _REVERT.match(subject):
        yield f"the subject is not 'area: change': {subject!r}"
    if len(subject) > LONGEST_SUBJECT:
        yield f"the subject has {len(subject)} characters; at most {LONGEST_SUBJECT} are allowed"


def tree_complaints(root: Path) -> Iterator[str]:
    """Yield every complaint about the code and the pages below a folder."""
    instead, exceptions = replacements(), allowed()
    for top in SOURCES:
        for path in sorted((root / top).rglob("*.py")):
            name, source = str(path.relative_to(root)), path.read_text("utf-8")
            yield from refused_words(name, source, instead, exceptions)
            yield from docstrings_and_names(name, source, exceptions)
    for page in sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")]):
        name = str(page.relative_to(root))
        if name in GENERATED:
            continue
        yield from refused_words(name, page.read_text("utf-8"), instead, exceptions)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--subject", type=Path, help="check the commit message in this file instead of the tree"
    )
    options = parser.parse_args()
    complaints = (
        subject_complaints(options.subject.read_text("utf-8")) if options.subject else tree_complaints(ROOT)
    )
    found = list(complaints)
    print("\n".join(found), end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
