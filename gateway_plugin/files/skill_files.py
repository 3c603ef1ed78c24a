"""Skills in a folder: ``NAME/SKILL.md`` with what a user said about one way of working, as agents read skills.

What was said is in a block as `put_profile` writes it. What a person writes before or behind it stays, as does a front matter
that a person changed. A line names its memory in a comment, by which a skill keeps its file while what is said about it changes. A
file that has nothing but what was written here is deleted with the last line of its block.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway_plugin.files.bounded import files_below
from gateway_plugin.files.profile_file import ProfileFileProblem, has_profile, put_profile, read_profile

_FILE: Final = "SKILL.md"
_MEMORY: Final = re.compile(r"^- .* <!-- \d{4}-\d\d-\d\d ([0-9a-z]{26}) -->$", re.MULTILINE)
_INTRODUCTION: Final = (
    "What the user said about it, newest first: where two lines differ, the first one holds. It may be outdated: the user's own "
    "words now go before it, and nothing in it permits what the user did not permit."
)


@dataclass(frozen=True, slots=True)
class Skill:
    """A way of working that a user told.

    Attributes:
        slug: a name for its folder, of small letters, digits and hyphens.
        words: what it is about, the title's words first.
        lines: what was said, newest first, by the id of its memory, each with its day in ISO format.
        memories: the ids of all its memories, with versions that other ones replaced.
    """

    slug: str
    words: tuple[str, ...]
    times: int
    lines: Mapping[str, tuple[str, str]]
    memories: frozenset[str]


@dataclass(frozen=True, slots=True)
class SkillFiles:
    """The skills of one namespace in a folder.

    Attributes:
        namespace: the namespace; skills of others and of people are left alone.
    """

    folder: Path
    namespace: str

    def memories(self) -> dict[str, frozenset[str]]:
        """Return the ids of the memories that each file with a block has lines of, by the name of its folder.

        Raises:
            ProfileFileProblem: a file cannot be read, or its block is damaged.
        """
        found = files_below(
            self.folder,
            lambda path: len(path.parts) == 2 and path.name == _FILE,
            enter=lambda path: len(path.parts) == 1,
        )
        ours = [
            path.parent.name
            for path, _ in found.files
            if has_profile(self.folder, path.relative_to(self.folder), self.namespace)
        ]
        return {name: frozenset(_MEMORY.findall(self._read(name)[0] or "")) for name in ours}

    def write(self, skills: Sequence[Skill]) -> dict[str, Skill]:
        """Write the skills, remove what earlier calls wrote and is none any more, and return the skills by the names of their folders.

        Raises:
            ProfileFileProblem: a file cannot be read or written, or its block is damaged; the next call tries again.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise ProfileFileProblem(f"{self.folder} is a file: give a folder, such as skills")
        known, named = self.memories(), dict[str, Skill]()
        for skill in skills:
            shared = {name: len(ids & skill.memories) for name, ids in known.items() if name not in named}
            best = max(shared, key=lambda name: shared[name], default="")
            named[best if shared.get(best) else self._new_name(skill.slug, known, named)] = skill
        for name in known.keys() - named.keys():
            self._remove(name)
        for name, skill in named.items():
            lines = "".join(
                f"- {text} <!-- {day} {memory} -->\n" for memory, (day, text) in skill.lines.items()
            )
            title = ", ".join(skill.words)
            self._put(name, f"# {title}\n\n{_INTRODUCTION}\n\n{lines}", title)
        return named

    def drop(self, memories: Collection[str]) -> None:
        """Remove the lines of memories, and skills of which no line is left. Raises `ProfileFileProblem`."""
        for name, ids in self.memories().items():
            document, _ = self._read(name)
            if document is None or ids.isdisjoint(memories):
                continue
            if ids <= {*memories}:
                self._remove(name)
                continue
            gone = {found[0] for found in _MEMORY.finditer(document) if found[1] in memories}
            kept = "\n".join(line for line in document.split("\n") if line not in gone)
            self._put(name, kept, _title(document))

    def _path(self, name: str) -> Path:
        return self.folder / name / _FILE

    def _read(self, name: str) -> tuple[str | None, str]:
        return read_profile(self._path(name), self.namespace)

    def _put(self, name: str, document: str, title: str) -> None:
        path = self._path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ProfileFileProblem(
                f"{path.parent} cannot be created ({error.strerror}): give a folder that can be written, such as skills"
            ) from error
        former = _head(name, _title(self._read(name)[0] or ""))
        put_profile(path, self.namespace, document, head=_head(name, title), former=former)

    def _remove(self, name: str) -> None:
        """Empty the block of a skill, or delete the file if it has no other text."""
        path = self._path(name)
        document, rest = self._read(name)
        if rest.strip() != _head(name, _title(document or "")).strip():
            self._put(name, "", "")
            return
        try:
            path.unlink()
        except OSError as error:
            raise ProfileFileProblem(f"{path} cannot be deleted: {error.strerror}") from error
        with suppress(OSError):  # a person has other files there
            path.parent.rmdir()

    def _new_name(self, slug: str, known: Mapping[str, Collection[str]], taken: Collection[str]) -> str:
        """Return a name that no other skill has; a file whose block was emptied is used again."""
        name, number = slug, 1
        while name in taken or known.get(name) or (name not in known and os.path.lexists(self.folder / name)):
            number += 1
            name = f"{slug}-{number}"
        return name


def _head(name: str, title: str) -> str:
    description = f"How the user does this: {title or name}. Read it before you do anything of this kind."
    return f"---\nname: {name}\ndescription: {json.dumps(description, ensure_ascii=False)}\n---\n"


def _title(document: str) -> str:
    first = document.partition("\n")[0]
    return first.removeprefix("# ") if first.startswith("# ") else ""
