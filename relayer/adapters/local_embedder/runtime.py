"""What the local models have in common: libraries that may be missing, files that are checked, pooled rows.

A text is run alone, so its vector depends on nothing but its tokens.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from relayer.errors import ConfigurationError
from relayer.ports import EmbeddingModel

Vectors = NDArray[np.float32]

# What MiniLM was trained to see (sentence-transformers' max_seq_length); twice that costs E5 twice as much.
MAX_TOKENS = 256
# Far beyond 256 tokens of real text, which are about 1,200: what nobody reads must not be tokenised first.
MAX_CHARACTERS = 4_096
# MADV_DONTNEED
_DONTNEED = 4


class LocalModel(Protocol):
    """A model that is loaded; its methods run on worker threads."""

    @property
    def identity(self) -> EmbeddingModel:
        """What its vectors are recorded as."""
        ...

    def encode(self, text: str, *, query: bool) -> list[int]:
        """Token ids of a text, at most 256, the model's start and end marks included."""
        ...

    def vector(self, ids: Sequence[int], *, query: bool) -> Vectors:
        """Vector of an encoded text, of length 1; shape (dimension,).

        Raises:
            EmbedderUnavailable: the runtime failed, for want of memory for example.
        """
        ...


def library(name: str, install: str) -> Any:
    """Import a library of the extra.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigurationError(f"{error.name} is not installed: {install}") from error


def verify(path: Path, sha256: str, install: str) -> None:
    """Check a file whose content is known in advance.

    Raises:
        ConfigurationError: it cannot be read, or is not that content.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigurationError(f"{path.name} of the local embedding model is missing: {install}") from error
    if digest != sha256:
        raise ConfigurationError(
            f"{path.name} of the local embedding model is not the expected file: {install}"
        )


def give_back() -> None:
    """Hand memory that was freed back to the system, as far as the C library can (glibc): what loading took, some 40 MB.

    Blocks for some milliseconds.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def give_back_pages(file: int) -> None:
    """Have the pages of a mapped file leave memory (Linux); who reads one has it read from the file again."""
    if sys.platform != "linux":
        return
    inode = str(os.fstat(file).st_ino)
    for line in Path("/proc/self/maps").read_text("ascii", "replace").splitlines():
        addresses, _, _, _, of = line.split(maxsplit=5)[:5]
        if of == inode:
            start, end = (int(address, 16) for address in addresses.split("-"))
            ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONTNEED)


def clean(text: str) -> str:
    """The part of a text that is read, as Unicode; a tokenizer refuses lone surrogates."""
    return text[:MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")


def mean_row(hidden: Vectors) -> Vectors:
    """Mean over a text's tokens, scaled to length 1."""
    # The mean's divisor cancels in the normalisation.
    return unit(hidden.sum(axis=0))


def unit(row: Vectors) -> Vectors:
    """A row scaled to length 1."""
    scaled: Vectors = row / np.float32(np.sqrt(row @ row))
    return scaled
