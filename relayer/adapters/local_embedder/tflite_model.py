"""A TensorFlow Lite model written in memory, and LiteRT, which runs it: its products in int8 are XNNPACK's (docs/adr/0032).

The classes of the schema (https://github.com/google-ai-edge/LiteRT/blob/main/tflite/converter/schema/schema.fbs) are generated and come
with the runtime; their attributes have its names.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayer.adapters.local_embedder import runtime
from relayer.errors import EmbedderUnavailable

_VERSION, _IDENTIFIER = 3, b"TFL3"
# Options that are not named as the operator is.
_OPTIONS = {"BATCH_MATMUL": "BatchMatMul", "MEAN": "Reducer"}
# What LiteRT writes to standard error when it first runs something.
_NOTICE = b"Created TensorFlow Lite XNNPACK delegate"


class Graph:
    """Tensors and operations, collected in the order in which they are given; a tensor goes by its number.

    Args:
        install: what a person does who lacks the library.

    Raises:
        ConfigurationError: LiteRT is not installed.
    """

    def __init__(self, install: str) -> None:
        self._schema = runtime.library("ai_edge_litert.schema_py_generated", install)
        self._builder = runtime.library("flatbuffers", install).Builder
        self._graph = self._schema.SubGraphT()
        self._graph.tensors, self._graph.operators, self._graph.inputs = [], [], []
        # The first one is empty, for tensors that are computed.
        self._buffers = [self._schema.BufferT()]
        self._operators: list[str] = []

    def input(self, shape: Sequence[int]) -> int:
        """Add what is given with each run, float32; sizes may then be others."""
        self._graph.inputs.append(self._tensor(shape))
        return int(self._graph.inputs[-1])

    def constant(self, values: NDArray[Any], scales: NDArray[np.float32] | None = None) -> int:
        """Add a tensor of float32 or int32, or one of int8 with a scale for each row."""
        buffer = self._schema.BufferT()
        buffer.data = np.frombuffer(values.tobytes(), np.uint8)
        self._buffers.append(buffer)
        index = self._tensor(values.shape)
        tensor = self._graph.tensors[index]
        tensor.type = getattr(self._schema.TensorType, values.dtype.name.upper())
        tensor.buffer = len(self._buffers) - 1
        if scales is not None:
            tensor.quantization = self._schema.QuantizationParametersT()
            tensor.quantization.scale = scales
            tensor.quantization.zeroPoint = np.zeros(len(scales), np.int64)
        return index

    def node(self, operator: str, inputs: Sequence[int], shape: Sequence[int], **given: Any) -> int:
        """Add an operation of one result.

        Args:
            operator: as in ``BuiltinOperator``.
            inputs: numbers of tensors.
            shape: of the result, where the inputs have the sizes given.
            given: attributes of the operation's options.
        """
        return self.nodes(operator, inputs, [shape], **given)[0]

    def nodes(
        self, operator: str, inputs: Sequence[int], shapes: Sequence[Sequence[int]], **given: Any
    ) -> list[int]:
        """Add an operation of several results; see `node`."""
        if operator not in self._operators:
            self._operators.append(operator)
        added = self._schema.OperatorT()
        added.opcodeIndex = self._operators.index(operator)
        added.inputs, added.outputs = list(inputs), [self._tensor(shape) for shape in shapes]
        options = _OPTIONS.get(operator, operator.title().replace("_", "")) + "Options"
        if hasattr(self._schema.BuiltinOptions, options):
            added.builtinOptionsType = getattr(self._schema.BuiltinOptions, options)
            added.builtinOptions = getattr(self._schema, f"{options}T")()
            vars(added.builtinOptions).update(given)
        self._graph.operators.append(added)
        return list(added.outputs)

    def shape(self, tensor: int) -> list[int]:
        """Sizes of a tensor, where the inputs have those given."""
        return list(self._graph.tensors[tensor].shape)

    def model(self, output: int) -> bytes:
        """The whole, with the tensor that is asked for."""
        # Weights come last: pages of a mapped file are read with their neighbours, and those of other constants with each run.
        sizes = [0, *(len(buffer.data) for buffer in self._buffers[1:])]
        order = sorted(range(len(sizes)), key=sizes.__getitem__)
        for tensor in self._graph.tensors:
            tensor.buffer = order.index(tensor.buffer)
        model = self._schema.ModelT()
        model.version, model.subgraphs = _VERSION, [self._graph]
        model.buffers = [self._buffers[index] for index in order]
        model.operatorCodes = [self._code(operator) for operator in self._operators]
        self._graph.outputs = [output]
        # As large as the weights from the start: a builder grows by copying.
        builder = self._builder(sum(sizes) + sum(sizes) // 8)
        builder.Finish(model.Pack(builder), _IDENTIFIER)
        return bytes(builder.Output())

    def _tensor(self, shape: Sequence[int]) -> int:
        tensor = self._schema.TensorT()
        tensor.shape = list(shape)
        self._graph.tensors.append(tensor)
        return len(self._graph.tensors) - 1

    def _code(self, operator: str) -> Any:
        code = self._schema.OperatorCodeT()
        code.builtinCode = getattr(self._schema.BuiltinOperator, operator)
        # Older readers knew no larger one.
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        return code


class Runner:
    """Runs a model of one input and one output, for any number of threads.

    An interpreter runs one text at a time. Where all are busy, another is made, which takes 35 ms and 22 MB.

    Args:
        content: the model.
        threads: of one run.
        install: what a person does who lacks the library.

    Raises:
        ConfigurationError: LiteRT is not installed.
    """

    def __init__(self, content: bytes, threads: int, install: str) -> None:
        self._interpreter = runtime.library("ai_edge_litert.interpreter", install).Interpreter
        self._threads = threads
        # An interpreter packs the weights anew and hardly reads the model again: of a file it keeps no page in memory.
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this, for further interpreters
        self._file.write(content)
        self._file.flush()
        with _without_notice():
            self._free = [self._made()]
        self._input = self._free[0].get_input_details()[0]["index"]
        self._output = self._free[0].get_output_details()[0]["index"]

    def run(self, rows: runtime.Vectors) -> runtime.Vectors:
        """The output for an input of whatever size.

        Raises:
            EmbedderUnavailable: the runtime failed.
        """
        try:
            interpreter = self._taken()
            interpreter.resize_tensor_input(self._input, rows.shape)
            interpreter.allocate_tensors()
            interpreter.set_tensor(self._input, rows)
            interpreter.invoke()
            found: runtime.Vectors = interpreter.get_tensor(self._output)
        except Exception as error:  # noqa: BLE001 - the runtime's errors share no base class
            raise EmbedderUnavailable(f"the embedding model failed ({type(error).__name__})") from None
        # One that failed does not come back.
        self._free.append(interpreter)
        return found

    def _taken(self) -> Any:
        try:
            return self._free.pop()
        except IndexError:
            return self._made()

    def _made(self) -> Any:
        source = f"/dev/fd/{self._file.fileno()}"
        interpreter = self._interpreter(model_path=source, num_threads=self._threads)
        interpreter.allocate_tensors()
        runtime.give_back_pages(self._file.fileno())
        return interpreter


@contextmanager
def _without_notice() -> Iterator[None]:
    """Take the runtime's line about itself out of standard error, which is a log. What else is written there meanwhile stays."""
    kept = os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        # Who was started meanwhile may hold the other end for long.
        os.set_blocking(reading, False)
        with suppress(BlockingIOError):
            for line in os.read(reading, 1 << 16).splitlines(keepends=True):
                if _NOTICE not in line:
                    os.write(2, line)
        os.close(reading)
