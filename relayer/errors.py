"""Every error that leaves a relayer module, drawn as the decision its catcher makes.

RelayerError
├─ StoreError                 the object store did not do what was asked
│  ├─ StoreUnavailable        try again later; nothing is known to be wrong with the request
│  │  └─ StoreThrottled       the same, and the store said when
│  ├─ StoreFull               no room: nothing was written, and trying again does not help until an operator acts
│  └─ StoreMisconfigured      an operator must act: missing permission, missing bucket, lying file system
│     ├─ VersionsHidden       older versions may not be listed: refuse where some are kept, warn elsewhere
│     └─ BrokenPromise        the store answers, and does not do what the log rests on
├─ WrongRelayerKey            the store belongs to another relayer key: refuse to start
├─ CorruptNamespace           the log contradicts itself: stop serving this namespace, keep the others
│  └─ AccountLost             an account's object is gone: let nobody of it in but its owner's list of revocations
├─ UpgradeRequired            written by a newer version: neither serve nor append (I12)
├─ NamespaceClosed            the namespace is being erased
├─ WrongNamespaceKey          the secret does not open the namespace's key check
├─ WrongCustody               the namespace is kept under the other custody
├─ EmbedderUnavailable        no vectors now: keep the text, answer degraded
├─ ModelUnavailable           no answer from the language model now: the work waits, nothing is lost
├─ ModelAnswerUnusable        it answered, and not with what was asked for; ``reason`` says how
├─ QueueFull                  back-pressure: the caller comes back after ``retry_after`` seconds
│  └─ AccountBusy             the same, of one account alone: it waits for itself, and gets no lesser answer instead
├─ RateLimited                it came too often: the caller comes back after ``retry_after`` seconds
├─ DeadlineExceeded           the request's time is up; names the step that was running
├─ Refused                    the state refuses the operation; ``code`` says which rule
└─ ConfigurationError         a setting is wrong: names the setting and the fix
"""

from __future__ import annotations

__all__ = [
    "AccountBusy",
    "AccountLost",
    "BrokenPromise",
    "ConfigurationError",
    "CorruptNamespace",
    "DeadlineExceeded",
    "EmbedderUnavailable",
    "ModelAnswerUnusable",
    "ModelUnavailable",
    "NamespaceClosed",
    "QueueFull",
    "RateLimited",
    "Refused",
    "RelayerError",
    "StoreError",
    "StoreFull",
    "StoreMisconfigured",
    "StoreThrottled",
    "StoreUnavailable",
    "UpgradeRequired",
    "VersionsHidden",
    "WrongCustody",
    "WrongNamespaceKey",
    "WrongRelayerKey",
]


class RelayerError(Exception):
    """Root of everything the relayer raises on purpose; its text is safe to show to an operator."""


class StoreError(RelayerError):
    """Raised when the object store did not do what was asked.

    Attributes:
        code: what is wrong, in a stable word (docs/operations/s3.md).
        fix: what to do about it; names nothing of this deployment, so ``GET /ready`` may show it to anybody.
    """

    code = "failed"
    fix = "the relayer's log says more"

    def __init__(self, message: str, *, code: str | None = None, fix: str | None = None) -> None:
        super().__init__(message)
        self.code = code or self.code
        self.fix = fix or self.fix


class StoreUnavailable(StoreError):
    """Raised when the store cannot answer now: trying again later may work."""

    code = "unavailable"
    fix = "it is tried again; see that the store runs"


class StoreThrottled(StoreUnavailable):
    """Raised when the store asks for patience.

    Attributes:
        retry_after: seconds to wait, as far as the store said.
    """

    code = "throttled"
    fix = "the store asks for patience and gets it; if that lasts, raise its limits"

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoreFull(StoreError):
    """Raised when the store has no room: nothing was written."""

    code = "full"
    fix = "make room, or raise the quota"


class StoreMisconfigured(StoreError):
    """Raised when an operator must act; the message names what is missing."""

    code = "misconfigured"


class VersionsHidden(StoreMisconfigured):
    """Raised when older versions may not be listed, so that nobody can destroy them.

    Attributes:
        kept: whether the store is known to keep versions at all.
    """

    code = "versions_hidden"

    def __init__(self, message: str, *, kept: bool) -> None:
        super().__init__(message, fix="grant s3:ListBucketVersions on the bucket")
        self.kept = kept


class BrokenPromise(StoreMisconfigured):
    """Raised when a store was seen to do otherwise than the log needs: not safe for several relayers."""

    code = "broken_promise"
    fix = "use a store with exact conditional writes"


class WrongRelayerKey(RelayerError):
    """Raised when the relayer's key does not open the store's check object."""


class CorruptNamespace(RelayerError):
    """Raised when a namespace's log contradicts itself."""


class AccountLost(CorruptNamespace):
    """Raised when an account has memories and no object that says what it took back; its text may be shown to anybody."""


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


class ModelUnavailable(RelayerError):
    """Raised when the language model gives no answer now.

    Attributes:
        retry_after: seconds after which trying again is reasonable.
    """

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ModelAnswerUnusable(RelayerError):
    """Raised when the language model's answer cannot be used; its text is in no message.

    Attributes:
        reason: ``refused``, ``truncated``, ``not_json``, ``wrong_shape``, ``empty`` or ``request_rejected``.
        tokens: what the answer cost all the same.
    """

    def __init__(self, reason: str, tokens: int = 0) -> None:
        super().__init__(f"the language model's answer cannot be used: {reason}")
        self.reason = reason
        self.tokens = tokens


class QueueFull(RelayerError):
    """Raised when a bounded queue is full.

    Attributes:
        retry_after: seconds after which trying again is reasonable.
    """

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class AccountBusy(QueueFull):
    """Raised when an account has as much waiting as it may, whatever room there is for others."""


class RateLimited(RelayerError):
    """Raised when something was done as often as it may be for now.

    Attributes:
        retry_after: seconds until it may be done again.
    """

    def __init__(self, message: str, retry_after: float) -> None:
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
        code: the stable name of the rule, see ``relayer.domain.operations``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ConfigurationError(RelayerError):
    """Raised when a setting is wrong; the message names the setting and the fix."""
