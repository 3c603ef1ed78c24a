"""Every error that leaves a relayer module, drawn as the decision its catcher makes.

RelayerError
├─ StoreError                 the object store did not do what was asked
│  ├─ StoreUnavailable        try again later; nothing is known to be wrong with the request
│  │  └─ StoreThrottled       the same, and the store said when
│  ├─ StoreFull               no room: nothing was written, and trying again does not help until an operator acts
│  └─ StoreMisconfigured      an operator must act: missing permission, missing bucket, lying file system
│     └─ BrokenPromise        the store answers, and does not do what the log rests on
├─ WrongRelayerKey            the store belongs to another relayer key: refuse to start
├─ CorruptNamespace           the log contradicts itself: stop serving this namespace, keep the others
├─ UpgradeRequired            written by a newer version: neither serve nor append (I12)
├─ NamespaceClosed            the namespace is being erased
├─ WrongNamespaceKey          the secret does not open the namespace's key check
├─ WrongCustody               the namespace is kept under the other custody
├─ EmbedderUnavailable        no vectors now: keep the text, answer degraded
├─ QueueFull                  back-pressure: the caller comes back after ``retry_after`` seconds
├─ DeadlineExceeded           the request's time is up; names the step that was running
├─ Refused                    the state refuses the operation; ``code`` says which rule
└─ ConfigurationError         a setting is wrong: names the setting and the fix
"""

from __future__ import annotations

__all__ = [
    "BrokenPromise",
    "ConfigurationError",
    "CorruptNamespace",
    "DeadlineExceeded",
    "EmbedderUnavailable",
    "NamespaceClosed",
    "QueueFull",
    "Refused",
    "RelayerError",
    "StoreError",
    "StoreFull",
    "StoreMisconfigured",
    "StoreThrottled",
    "StoreUnavailable",
    "UpgradeRequired",
    "WrongCustody",
    "WrongNamespaceKey",
    "WrongRelayerKey",
]


class RelayerError(Exception):
    """Root of everything the relayer raises on purpose; its text is safe to show to an operator."""


class StoreError(RelayerError):
    """Raised when the object store did not do what was asked."""


class StoreUnavailable(StoreError):
    """Raised when the store cannot answer now: trying again later may work."""


class StoreThrottled(StoreUnavailable):
    """Raised when the store asks for patience.

    Attributes:
        retry_after: seconds to wait, as far as the store said.
    """

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoreFull(StoreError):
    """Raised when the store has no room: nothing was written."""


class StoreMisconfigured(StoreError):
    """Raised when an operator must act; the message names what is missing."""


class BrokenPromise(StoreMisconfigured):
    """Raised when a store was seen to do otherwise than the log needs: not safe for several relayers."""


class WrongRelayerKey(RelayerError):
    """Raised when the relayer's key does not open the store's check object."""


class CorruptNamespace(RelayerError):
    """Raised when a namespace's log contradicts itself."""


class UpgradeRequired(RelayerError):
    """Raised when an object was written by a version this one does not understand (I12)."""


class NamespaceClosed(RelayerError):
    """Raised when the namespace was closed by an erasure."""


class WrongNamespaceKey(RelayerError):
    """Raised when a namespace secret does not open the namespace's key check."""


class WrongCustody(RelayerError):
    """Raised when a request uses the custody that the namespace was not created with."""


class EmbedderUnavailable(RelayerError):
    """Raised when no embedding can be computed now."""


class QueueFull(RelayerError):
    """Raised when a bounded queue is full.

    Attributes:
        retry_after: seconds after which trying again is reasonable.
    """

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class DeadlineExceeded(RelayerError):
    """Raised when a request's time is up.

    Attributes:
        step: the step that was running, one of the names in docs/protocol.md.
    """

    def __init__(self, step: str) -> None:
        super().__init__(f"the deadline passed during {step}")
        self.step = step


class Refused(RelayerError):
    """Raised when the namespace's state refuses an operation.

    Attributes:
        code: the stable name of the rule, see ``relayer.domain.outcomes``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ConfigurationError(RelayerError):
    """Raised when a setting is wrong; the message names the setting and the fix."""
