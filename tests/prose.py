"""Check what people read: spelling (codespell, in pages and in what is installed) and prose (proselint, sentences alone, without code).

    python tests/prose.py

Words of the field that a checker takes for mistakes stand in tests/prose_words.txt, one a line.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from proselint.checks import __register__
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

ROOT = Path(__file__).resolve().parents[1]
WORDS = Path(__file__).with_name("prose_words.txt")
# Typography: quotes as a keyboard has them, which is what code beside them has. Illusions are told below, by words alone.
LEFT_OUT = {"typography": False, "lexical_illusions": False}
_CODE = re.compile(r"^```.*?^```$|<!--.*?-->|`[^`\n]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
_TWICE = re.compile(r"\b([a-z]{2,}) \1\b", re.IGNORECASE)
# Others' names and generated tables, which nobody here writes.
_GENERATED = {"docs/features.md"}


def pages() -> list[Path]:
    """Return every page of the repository that a person reads."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "infra" / "README.md"]
    return [page for page in found if str(page.relative_to(ROOT)) not in _GENERATED]


def sentences(text: str) -> str:
    """Return a page without its code, each line where it was."""
    return _CODE.sub(lambda code: re.sub(r"[^\n]+", "…", code.group()), text)


def complaints(name: str, text: str, known: set[str]) -> list[str]:
    """Return what is wrong with the prose of a page, a line each."""
    prose = sentences(text)
    file = LintFile(name, prose)
    found: list[str] = []
    for result in file.lint({"max_errors": 1000, "checks": {**DEFAULT["checks"], **LEFT_OUT}}):
        line, column = result.pos
        said = " ".join(result.check_result.message.split())
        first, last = result.check_result.span
        shown = " ".join(file.content[first:last].split()).lower()
        if shown not in known:
            found.append(f"{name}:{line}:{column}: {said} ({shown})")
    for number, one in enumerate(prose.splitlines(), 1):
        found += [f"{name}:{number}: a word stands twice: {twice.group()}" for twice in _TWICE.finditer(one)]
    return found


def spelling(words: Path) -> int:
    """Run codespell over the repository; return its exit code."""
    places = ["docs", "relayer", "gateway_plugin", "memrelay", "demo", "infra", *map(str, ROOT.glob("*.md"))]
    skipped = "*.svg,*.json,*.tsv,*.txt,*/data/*,__pycache__"
    command = [
        sys.executable,
        "-m",
        "codespell_lib",
        "--ignore-words",
        str(words),
        "--skip",
        skipped,
        *places,
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> int:
    known = {line.strip().lower() for line in WORDS.read_text("utf-8").splitlines() if line.strip()}
    # The registry is one for the process: what is registered twice is checked twice.
    CheckRegistry().register_many(__register__)
    found = [
        complaint
        for page in pages()
        for complaint in complaints(str(page.relative_to(ROOT)), page.read_text("utf-8"), known)
    ]
    print("\n".join(found), end="\n" if found else "")
    return spelling(WORDS) or int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
