"""A writer of ONNX models in memory, with only those messages of onnx.proto that the models here need.

`OnnxGraph` collects nodes and constants, and `OnnxGraph.model` returns the model. Field numbers are those of
https://github.com/onnx/onnx/blob/main/onnx/onnx.proto. The package `onnx` writes the same bytes, but has 36 MB.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

# TensorProto.DataType and AttributeProto.AttributeType.
_DATA_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6}
_FLOAT, _INT = 1, 2
# The newest of the standard operators that onnxruntime 1.20 knows in the form used here, and the IR that goes with it.
_OPSET, _IR_VERSION = 18, 9
CONTRIB = "com.microsoft"
"""Domain of onnxruntime's own operators (ContribOperators.md in its documentation)."""


class OnnxGraph:
    """An ONNX graph, whose nodes and constants are written in the order in which they are added."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def constant(self, name: str, values: NDArray[Any]) -> str:
        """Add a constant tensor (float32, uint8 or int8), and return its name."""
        shape = b"".join(_field(1, size) for size in values.shape)
        kind = _field(2, _DATA_TYPES[values.dtype.name])
        self._parts.append(_field(5, shape + kind + _field(8, name) + _field(9, values.tobytes())))
        return name

    def node(
        self, operator: str, inputs: Sequence[str], *outputs: str, domain: str = "", **given: float
    ) -> str:
        """Add an operation with its attributes, and return the name of its first output."""
        names = b"".join(_field(1, name) for name in inputs) + b"".join(_field(2, name) for name in outputs)
        attributes = b"".join(_field(5, _attribute(name, value)) for name, value in given.items())
        self._parts.append(_field(1, names + _field(4, operator) + attributes + _field(7, domain)))
        return outputs[0]

    def model(self, inputs: dict[str, tuple[str, Sequence[int | str]]], outputs: Sequence[str]) -> bytes:
        """Return the graph as an encoded ModelProto.

        Args:
            inputs: type and shape by name; a dimension that is a name has any size.
            outputs: names of the tensors that a run returns.
        """
        graph = b"".join(self._parts) + _field(2, "graph")
        graph += b"".join(_field(11, _value(name, *given)) for name, given in inputs.items())
        graph += b"".join(_field(12, _field(1, name)) for name in outputs)
        opsets = [_field(1, domain) + _field(2, version) for domain, version in (("", _OPSET), (CONTRIB, 1))]
        return _field(1, _IR_VERSION) + _field(7, graph) + b"".join(_field(8, opset) for opset in opsets)


def _attribute(name: str, value: float) -> bytes:
    if isinstance(value, int):
        return _field(1, name) + _field(3, value) + _field(20, _INT)
    return _field(1, name) + _field(2, value) + _field(20, _FLOAT)


def _value(name: str, kind: str, shape: Sequence[int | str]) -> bytes:
    sizes = b"".join(_field(1, _field(1 if isinstance(size, int) else 2, size)) for size in shape)
    tensor = _field(1, _DATA_TYPES[kind]) + _field(2, sizes)
    return _field(1, name) + _field(2, _field(1, tensor))


def _field(number: int, value: float | str | bytes) -> bytes:
    """Return one field of a message in protobuf's wire format."""
    match value:
        case int():
            return _varint(number << 3) + _varint(value)
        case float():
            return _varint(number << 3 | 5) + struct.pack("<f", value)
        case str():
            value = value.encode()
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    # Negative numbers are written as their two's complement of 64 bits.
    number &= 2**64 - 1
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    return bytes((*written, number))
