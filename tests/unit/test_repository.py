"""Guards over the repository itself: what it must hold, and what must never slip into it."""

from __future__ import annotations

import importlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.tier("fast")  # git's list of files takes milliseconds
ROOT = Path(__file__).resolve().parents[2]
MAX_BYTES = 512 * 1024
# Weights that no package has; each new version stays in the history for good, so they change rarely.
WEIGHTS = {
    "relayer/adapters/models/relation_reader.npz": 12 * 1024 * 1024,
    "relayer/adapters/models/prompt_layers.npz": 4 * 1024 * 1024,
    "relayer/adapters/models/message_layers.npz": 4 * 1024 * 1024,
    "relayer/adapters/models/cross_encoder.npz": 12 * 1024 * 1024,
}
BINARY = {".png", ".ico", ".npy", ".npz", ".onnx"}
PACKAGES = ("relayer/", "gateway_plugin/", "memrelay/", "demo/")
SEALED = re.compile(r"tests/golden/format-1/(objects|backup)/")
# Data of others, and the one text that must quote what is forbidden.
NOT_PROSE = {"relayer/adapters/models/tokenizer.json", "tests/unit/test_repository.py", "LICENSE"}

FORBIDDEN = {
    # Unicode's annexes and technical standards are numbered in the same way.
    "an issue number": re.compile(
        r"(?<![\w&/#])(?<!UAX )(?<!UTS )#[1-9]\d{0,4}\b(?!;)|\b(?:[Ii]ssue|PR) \d+\b"
    ),
    "a path of one machine": re.compile(r"(?<![\w.}])/(?:work|tmp|root)/"),
    "a package registry's host": re.compile(
        r"\b(?:registry|artifactory|nexus|mirrors?)\.[a-z0-9-]+\.[a-z]{2,}|pypi\.org/simple|--(?:extra-)?index-url"
    ),
    "an open end": re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b"),
}
OFFENDERS = {
    "an issue number": ["see #12", "(issue 7)", "fixed in PR 41", "Pull request #9"],
    "a path of one machine": ["in /work/main", "open /tmp/x", "'/root/data'"],
    "a package registry's host": [
        "https://registry.corp.example/x",
        "pip install --index-url x",
        "pypi.org/simple",
    ],
    "an open end": ["# TODO: later", "FIXME"],
}


def _tracked() -> list[str]:
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True, timeout=30
    )
    return sorted(name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file())


def _texts() -> Iterator[tuple[str, str]]:
    for name in _tracked():
        if name not in NOT_PROSE and Path(name).suffix not in BINARY and not SEALED.match(name):
            yield name, (ROOT / name).read_text(encoding="utf-8")


def _modules() -> list[str]:
    files = [Path(name) for name in _tracked() if name.startswith(PACKAGES)]
    dotted = [".".join(file.with_suffix("").parts) for file in files if file.suffix == ".py"]
    return [name.removesuffix(".__init__") for name in dotted]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_text_contains(what: str) -> None:
    found = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}"
        for name, text in _texts()
        for match in FORBIDDEN[what].finditer(text)
    ]
    assert not found, f"{what} in: {found}"


def test_the_guard_finds_every_offender() -> None:
    missed = [text for what, texts in OFFENDERS.items() for text in texts if not FORBIDDEN[what].search(text)]
    assert not missed


def test_no_tracked_file_is_large() -> None:
    large = [name for name in _tracked() if (ROOT / name).stat().st_size > WEIGHTS.get(name, MAX_BYTES)]
    assert not large


def test_the_licence_is_the_one_that_the_package_names() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_what_was_taken_from_others_is_named() -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    carried = [path.name for path in (ROOT / "relayer/adapters/models").iterdir() if path.suffix == ".json"]
    assert carried
    assert all(name in notice for name in carried)


def test_the_layout_of_the_code_names_every_package() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"^((?:relayer|gateway_plugin|memrelay)/[a-z_]+) {2,}\S", contributing, re.MULTILINE)
    there = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("*/*/__init__.py")}
    assert len(named) == len(set(named))
    assert set(named) == {name for name in there if name.startswith(PACKAGES)}


def test_the_files_that_a_change_touches_are_there_and_no_more_than_five() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    passage = text.partition("## Six changes")[2].partition("\n## ")[0]
    changes = passage.split("\n\n**")[1:]
    assert len(changes) == 6
    for change in changes:
        files = re.findall(r"^- `([^`]+)`", change, re.MULTILINE)
        assert 0 < len(files) <= 5
        named = re.findall(r"`([a-z_]+/[\w/.]+)`", change)
        assert [name for name in named if "NAME" not in name and not (ROOT / name).exists()] == []


def test_every_module_is_imported_and_has_its_public_names() -> None:
    # An integration needs the package of its framework; `make test-integrations` imports it with that.
    names = [name for name in _modules() if not name.startswith("memrelay.integrations.")]
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    assert len(modules) > 100
    missing = [
        f"{module.__name__}.{name}"
        for module in modules
        for name in getattr(module, "__all__", ())
        if not hasattr(module, name)
    ]
    assert not missing


def _links(text: str) -> set[str]:
    without_code = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return {link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", without_code) if "://" not in link}


def test_every_link_between_documents_leads_somewhere() -> None:
    broken = [
        f"{name}: {link}"
        for name, text in _texts()
        if name.endswith(".md")
        for link in _links(text)
        if not (ROOT / name).parent.joinpath(link).exists()
    ]
    assert not broken


def _headings(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    without_code = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    plain = [
        re.sub(r"`|\*|\[([^\]]*)\]\([^)]*\)", lambda part: part[1] or "", heading).lower()
        for heading in re.findall(r"^#+ (.*)$", without_code, re.MULTILINE)
    ]
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


def test_every_link_to_a_heading_leads_to_one() -> None:
    broken = []
    for name, text in _texts():
        if not name.endswith(".md"):
            continue
        without_code = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for file, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", without_code):
            target = (ROOT / name).parent / file if file else ROOT / name
            if anchor not in _headings(target.read_text(encoding="utf-8")):
                broken.append(f"{name}: {file}#{anchor}")
    assert not broken


def test_nothing_says_to_install_what_is_not_published() -> None:
    """Whoever takes the name at an index would be installed: until it is published, a clone is what there is."""
    here = Path(__file__).relative_to(ROOT).as_posix()
    wrong = re.compile(r"pip install (?:-U |--upgrade )?'?memrelay")
    assert [name for name, text in _texts() if name != here and wrong.search(text)] == []


def test_every_make_target_that_a_document_names_exists() -> None:
    targets = set(
        re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    named = {
        (name, target)
        for name, text in _texts()
        if name.endswith(".md")
        for target in re.findall(r"`make ([a-z0-9-]+)|^make ([a-z0-9-]+)", text, re.MULTILINE)
        for target in target
        if target
    }
    assert named
    assert not [f"{name}: make {target}" for name, target in named if target not in targets]


def test_the_python_of_every_document_compiles() -> None:
    blocks = [
        (name, block)
        for name, text in _texts()
        if name.endswith(".md")
        for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    ]
    assert blocks
    for name, block in blocks:
        compile(block, name, "exec")
