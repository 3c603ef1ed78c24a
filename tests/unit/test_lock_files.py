"""The container image installs by hash, from files that are in step with pyproject.toml and name no index."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WANTED = {
    "requirements.lock": [
        *PROJECT["project"]["dependencies"],
        *(one for extra in ("relayer", "otlp") for one in PROJECT["project"]["optional-dependencies"][extra]),
    ],
    "requirements-build.lock": PROJECT["build-system"]["requires"],
}


def locked(name: str) -> dict[str, tuple[Requirement, int]]:
    """Return each package of a file with the number of its hashes."""
    text = re.sub(r"^ *#.*\n", "", (ROOT / name).read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found = {}
    for line in filter(str.strip, text.splitlines()):
        requirement = Requirement(line.partition("--hash")[0])
        found[canonicalize_name(requirement.name)] = (
            requirement,
            len(re.findall(r"--hash=sha256:[0-9a-f]{64}", line)),
        )
    return found


@pytest.mark.parametrize("name", WANTED)
def test_every_package_is_one_version_with_hashes_and_no_file_names_an_index(name: str) -> None:
    pins = locked(name)
    for requirement, hashes in pins.values():
        assert [one.operator for one in requirement.specifier] == ["=="], requirement
        assert hashes, requirement
    assert not re.search(r"https?:|--index|--find-links", (ROOT / name).read_text())


@pytest.mark.parametrize("name", WANTED)
def test_it_holds_what_the_project_asks_for_in_a_version_that_fits(name: str) -> None:
    pins = locked(name)
    for text in WANTED[name]:
        wanted = Requirement(text)
        assert canonicalize_name(wanted.name) in pins, f"{wanted.name}: make lock"
        (pinned,) = pins[canonicalize_name(wanted.name)][0].specifier
        assert pinned.version in wanted.specifier, f"{wanted}: make lock"


def test_what_builds_the_wheel_is_asked_for_as_the_project_has_it() -> None:
    asked = [
        line
        for line in (ROOT / "infra/container/build.in").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert asked == PROJECT["build-system"]["requires"]


def test_the_image_takes_nothing_from_an_index_without_a_hash() -> None:
    dockerfile = (ROOT / "infra/container/Dockerfile").read_text().replace("\\\n", " ")
    commands = re.findall(r"pip (?:install|wheel)[^&\n]*", dockerfile)
    assert len(commands) == 4
    for command in commands:
        assert "--require-hashes" in command or "--no-deps" in command
