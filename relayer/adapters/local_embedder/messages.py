"""The reading of messages: two layers of multilingual-e5-small that were trained to say which sentences are worth storing.

The classifiers of `relayer.lib.n_grams` know words and not what they mean together. ``bench/message_layers.py`` trains the last
two layers again, for messages alone, with linear forms of the mean row for the classes of messages and the kinds of statements.
They are stored in int8 in ``models/message_layers.npz``, 3.6 MB, which take as much memory.
"""

from __future__ import annotations

from pathlib import Path

from relayer.adapters.local_embedder import runtime
from relayer.adapters.local_embedder.e5 import E5, INSTALL, MODELS, last_layers
from relayer.adapters.local_embedder.relations import TrainedLayers
from relayer.ports import MESSAGE_LOGITS

MESSAGES_SHA256 = "016f21d45ef7d30eed468d930865e46625bcebf2becb75ee3218d5266d2e9dd7"
READ_TOKENS = 96
"""The number of tokens of a text that are read."""
LENGTH = 10.0
"""The length that the vector has before the linear forms."""


def layers_file() -> Path:
    """Return the path of the trained layers, made by bench/message_layers.py."""
    return MODELS / "message_layers.npz"


def verify_layers() -> None:
    """Check the file of the trained layers, which are loaded later, if at all.

    Raises:
        ConfigurationError: it is missing, or is not the expected one.
    """
    runtime.verify(layers_file(), MESSAGES_SHA256, INSTALL)


class MessageLayers:
    """Reads messages; loads its layers, whose file is verified already, when it is created.

    Args:
        model: the embedding model, which runs all layers but the last two.
        path: of the trained layers; None for those of this package.
    """

    def __init__(self, model: E5, path: Path | None = None) -> None:
        weights = TrainedLayers(path or layers_file(), model.divisors)
        self._model = model
        self._last = model.session_of(weights, last_layers(model.layers))
        self._weights = weights.floats("head.w").reshape(MESSAGE_LOGITS, -1)
        self._bias = weights.floats("head.b")

    def read(self, text: str) -> runtime.Vectors:
        """Return the logits of a text; shape (14,), see `relayer.ports.MessageReader`.

        Raises:
            EmbedderUnavailable: the runtime failed.
        """
        states = self._model.shared_states(self._model.encode(text, query=False)[:READ_TOKENS])
        hidden = runtime.hidden_states(self._last, {"rows": states[None]})
        logits: runtime.Vectors = (
            self._weights @ self._model.centred(runtime.mean_row(hidden), query=False) + self._bias
        )
        return logits
