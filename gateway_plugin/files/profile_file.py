"""Write a profile into a file that is not ours, such as a workspace's USER.md: one block for each namespace.

The block is enclosed in tags that the plugin recognises. So if a host puts the file into a message, the block is not captured
again, and an import of the file skips it. The rest of the file is preserved byte by byte.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from gateway_plugin.errors import GatewayError, IdentityError
from gateway_plugin.files.bounded import NotRead, opened_below, read_below
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
    after = _with_block(path, text, namespace, document)
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


def _with_block(path: Path, text: str, namespace: str, document: str) -> str:
    own = _own_block(path, text, namespace)
    line_end = "\r\n" if "\r\n" in text else "\n"
    lines = [f'<{OUR_TAG} profile="{namespace}">', *([f"\n{document}"] if document else []), _END]
    block = "\n".join(lines).replace("\n", line_end)
    if own is not None:
        begin, end = own
        return text[:begin] + block + text[end:]
    if not document:
        return text
    gap = "" if not text else line_end if text.endswith("\n") else line_end * 2
    return f"{text}{gap}{block}{line_end}"


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
