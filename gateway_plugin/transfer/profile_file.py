"""A profile inside a file that belongs to somebody else, such as a workspace's USER.md: one block for each namespace.

The block stands between tags that the plugin knows as its own, so that a host which puts the file into a message has
none of it captured again, and an import of the file leaves it out. Everything around it stays byte by byte.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from gateway_plugin.bounded_files import NotRead, opened_below, read_below
from gateway_plugin.errors import GatewayError, IdentityError
from gateway_plugin.private_files import replace_private
from gateway_plugin.text.wrappers import OUR_TAG

_END: Final = f"</{OUR_TAG}>"
_BEGIN: Final = re.compile(rf'^<{OUR_TAG} profile="([^"\n]+)">[ \t]*\r?$', re.MULTILINE)
_ANY_END: Final = re.compile(rf"^{_END}[ \t]*\r?$", re.MULTILINE)


class ProfileFileProblem(GatewayError):
    """Raised when a file cannot take a profile; names the file and the fix. The file is as it was."""


def put_profile(path: Path, namespace: str, document: str) -> bool:
    """Put a profile into a file, in the place of an earlier one of the same namespace, or at its end.

    A file that is not there is made, for its owner alone; one that is there keeps its mode. A link is not followed: who
    planted it would have a file of their choice read and written.

    Args:
        path: of the file.
        namespace: whose profile.
        document: the profile; an empty one leaves the block empty, and makes none.

    Returns:
        Whether the file was written: not when it says all that already.

    Raises:
        ProfileFileProblem: it is no file of UTF-8, has a damaged block, or cannot be read or written.
    """
    before, mode = _read(path)
    after = _with_block(path, before, namespace, document)
    if after == before:
        return False
    try:
        replace_private(path, after.encode(), mode=mode)
    except IdentityError as error:
        raise ProfileFileProblem(
            f"{path} cannot be written: may this user write it and its directory?"
        ) from error
    return True


def without_profiles(text: str) -> str:
    """Return a file's text with the lines of every profile blank: line numbers stay, and nothing is read twice."""
    parts, start = [], 0
    for _, begin, end in _blocks(text):
        parts += [text[start:begin], re.sub(r"[^\n]", "", text[begin:end])]
        start = end
    return "".join([*parts, text[start:]])


def _read(path: Path) -> tuple[str, int]:
    """Return what a file says, and its mode; nothing, and a new one's, for one that is not there."""
    folder = path.parent.resolve()
    try:
        with opened_below(folder, path.name) as descriptor:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        return read_below(folder, path.name).decode(), mode
    except NotRead as error:
        if error.missing:
            return "", 0o600
        raise ProfileFileProblem(f"{path}: {error.cause}; name a file, such as USER.md") from error
    except UnicodeDecodeError as error:
        raise ProfileFileProblem(f"{path} is not UTF-8: convert it, or name another file") from error


def _with_block(path: Path, text: str, namespace: str, document: str) -> str:
    own = [(begin, end) for name, begin, end in _blocks(text) if name == namespace]
    if len(own) > 1 or _is_damaged(text):
        raise ProfileFileProblem(
            f"{path} has a profile without its end, or the same twice: delete the lines from "
            f'<{OUR_TAG} profile="..."> on, and try again'
        )
    line_end = "\r\n" if "\r\n" in text else "\n"
    lines = [f'<{OUR_TAG} profile="{namespace}">', *([f"\n{document}"] if document else []), _END]
    block = "\n".join(lines).replace("\n", line_end)
    if own:
        begin, end = own[0]
        return text[:begin] + block + text[end:]
    if not document:
        return text
    gap = "" if not text else line_end if text.endswith("\n") else line_end * 2
    return f"{text}{gap}{block}{line_end}"


def _blocks(text: str) -> list[tuple[str, int, int]]:
    """Return the namespace, the beginning and the end of every whole block."""
    found = []
    for begin, following in _begins(text):
        end = _ANY_END.search(text, begin.end(), following)
        if end is not None:
            found.append((begin[1], begin.start(), end.start() + len(_END)))
    return found


def _is_damaged(text: str) -> bool:
    return len(_blocks(text)) != len(_begins(text))


def _begins(text: str) -> list[tuple[re.Match[str], int]]:
    """Return where blocks begin, each with where the next one does."""
    matches = list(_BEGIN.finditer(text))
    nexts = [*(match.start() for match in matches[1:]), len(text)]
    return list(zip(matches, nexts, strict=False))
