"""Blocks of ours in files that are not ours: a profile in a workspace's USER.md, and skills, ``NAME/SKILL.md`` in a folder.

A file has one block for each namespace (`put_profile`). The block is enclosed in tags that the plugin recognises. So if a host
puts the file into a message, the block is not captured again, and an import of the file skips it. The rest of the file is
preserved byte by byte.

A skill (`SkillFiles`) has in its block what a user said about one way of working. What a person writes before or behind it stays,
as does a front matter that a person changed. A line names its memory in a comment, by which a skill keeps its file while what is
said about it changes. A file that has nothing but what was written here is deleted with the last line of its block.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway_plugin.errors import GatewayError, IdentityError
from gateway_plugin.files.bounded import NotRead, files_below, opened_below, read_below
from gateway_plugin.keys.private_files import replace_private
from gateway_plugin.text.wrappers import OUR_TAG

_END: Final = f"</{OUR_TAG}>"
_BEGIN: Final = re.compile(rf'^<{OUR_TAG} profile="([^"\n]+)">[ \t]*\r?$', re.MULTILINE)
_ANY_END: Final = re.compile(rf"^{_END}[ \t]*\r?$", re.MULTILINE)


class ProfileFileProblem(GatewayError):
    """Raised when a profile cannot be written into a file. The message names the file and the fix; the file is unchanged."""


def put_profile(path: Path, namespace: str, document: str, *, head: str = "", former: str = "") -> bool:
    """Write a profile into a file, in place of the block of the same namespace, or at its end.

    A missing file is created with permissions for its owner only; an existing one keeps its mode. Links are not followed, since
    a planted link could have any file read and written.

    Args:
        path: path of the file.
        namespace: the namespace of the profile.
        document: the profile. If it is empty, an existing block is emptied, and none is created.
        head: the text before the block in a new file, and in one that begins with ``former``.
        former: the head that an earlier call wrote; if a person changed it, it stays.

    Returns:
        Whether the file was written; False if it contains the profile already.

    Raises:
        ProfileFileProblem: it is no UTF-8 file, has a damaged block, or cannot be read or written.
    """
    before, mode = _read(path)
    is_ours = not before or (former and before.startswith(former))
    text = head + before.removeprefix(former) if is_ours else before
    own = _own_block(path, text, namespace)
    line_end = "\r\n" if "\r\n" in text else "\n"
    lines = [f'<{OUR_TAG} profile="{namespace}">', *([f"\n{document}"] if document else []), _END]
    block = "\n".join(lines).replace("\n", line_end)
    after = text
    if own is not None:
        after = text[: own[0]] + block + text[own[1] :]
    elif document:
        gap = "" if not text else line_end if text.endswith("\n") else line_end * 2
        after = f"{text}{gap}{block}{line_end}"
    if after == before:
        return False
    try:
        replace_private(path, after.encode(), mode=mode)
    except IdentityError as error:
        raise ProfileFileProblem(
            f"{path} cannot be written: check the permissions of the file and its directory"
        ) from error
    return True


def read_profile(path: Path, namespace: str) -> tuple[str | None, str]:
    """Return the profile of a namespace in a file, None if there is no block for it, and the text of the file without the block.

    Raises:
        ProfileFileProblem: as in `put_profile`.
    """
    text, _ = _read(path)
    own = _own_block(path, text, namespace)
    if own is None:
        return None, text
    begin, end = own
    block = text[begin:end].replace("\r\n", "\n")
    return block.partition("\n")[2].removesuffix(_END).removeprefix("\n"), text[:begin] + text[end:]


def has_profile(folder: Path, name: Path, namespace: str) -> bool:
    """Return whether a file below a folder has a profile of a namespace, whole or damaged; False if it cannot be read."""
    with suppress(NotRead):
        return f'<{OUR_TAG} profile="{namespace}">'.encode() in read_below(folder, name)
    return False


def without_profiles(text: str) -> str:
    """Return a file's text with the lines of every profile blanked, so that line numbers do not change."""
    parts, start = [], 0
    for _, begin, end in _blocks(text):
        parts += [text[start:begin], re.sub(r"[^\n]", "", text[begin:end])]
        start = end
    return "".join([*parts, text[start:]])


def _read(path: Path) -> tuple[str, int]:
    """Return the text and mode of a file; for a missing one, "" and the mode of a new file."""
    folder = path.parent.resolve()
    try:
        with opened_below(folder, path.name) as descriptor:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        return read_below(folder, path.name).decode(), mode
    except NotRead as error:
        if error.missing:
            return "", 0o600
        raise ProfileFileProblem(f"{path}: {error.cause}; give a file, such as USER.md") from error
    except UnicodeDecodeError as error:
        raise ProfileFileProblem(f"{path} is not UTF-8: convert it, or give another file") from error


def _own_block(path: Path, text: str, namespace: str) -> tuple[int, int] | None:
    own = [(begin, end) for name, begin, end in _blocks(text) if name == namespace]
    if len(own) > 1 or len(_blocks(text)) != len(_begins(text)):
        raise ProfileFileProblem(
            f"{path} contains an incomplete or duplicated profile: delete the lines from "
            f'<{OUR_TAG} profile="..."> on, and try again'
        )
    return own[0] if own else None


def _blocks(text: str) -> list[tuple[str, int, int]]:
    found = []
    for begin, following in _begins(text):
        end = _ANY_END.search(text, begin.end(), following)
        if end is not None:
            found.append((begin[1], begin.start(), end.start() + len(_END)))
    return found


def _begins(text: str) -> list[tuple[re.Match[str], int]]:
    matches = list(_BEGIN.finditer(text))
    nexts = [*(match.start() for match in matches[1:]), len(text)]
    return list(zip(matches, nexts, strict=False))


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
            name = max(shared, key=lambda name: shared[name], default="")
            if not shared.get(name):
                name, number = skill.slug, 1
                # No other skill and no file of a person has this name; a file whose block was emptied is used again.
                while name in named or known.get(name, os.path.lexists(self.folder / name)):
                    number += 1
                    name = f"{skill.slug}-{number}"
            named[name] = skill
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


def _head(name: str, title: str) -> str:
    description = f"How the user does this: {title or name}. Read it before you do anything of this kind."
    return f"---\nname: {name}\ndescription: {json.dumps(description, ensure_ascii=False)}\n---\n"


def _title(document: str) -> str:
    first = document.partition("\n")[0]
    return first.removeprefix("# ") if first.startswith("# ") else ""
