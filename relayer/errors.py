"""The exceptions that relayer modules raise.

Each says what it means, and what the code that catches it does. Exceptions that need the same decision have a common base
class. Attributes such as ``code`` and ``retry_after`` go into the response.
"""

from __future__ import annotations


class RelayerError(Exception):
    """The base class of everything the relayer raises on purpose; its text is safe to show to an operator."""


class RetryLater(RelayerError):
    """Base class of errors that pass by themselves."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoreError(RelayerError):
    """Raised when the object store did not do what was requested.

    Attributes:
        code: a stable word for what is wrong (docs/operations/s3.md).
        fix: what to do about it; names nothing of this deployment, so ``GET /ready`` may show it to every client.
    """

    code = "failed"
    fix = "the relayer's log says more"

    def __init__(self, message: str, *, code: str | None = None, fix: str | None = None) -> None:
        super().__init__(message)
        self.code = code or self.code
        self.fix = fix or self.fix


class StoreUnavailable(StoreError):
    """Raised when the store cannot respond now: retry later; nothing is known to be wrong with the request."""

    code = "unavailable"
    fix = "it is tried again; see that the store runs"


class StoreThrottled(StoreUnavailable):
    """Raised when the store asks for a pause before the next request.

    Attributes:
        retry_after: seconds to wait, as the store said; 1 if it did not say.
    """

    code = "throttled"
    fix = "the store asks for patience and gets it; if that lasts, raise its limits"

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoreFull(StoreError):
    """Raised when the store has no space left: nothing was written, and a retry does not help until an operator acts."""

    code = "full"
    fix = "make room, or raise the quota"


class StoreMisconfigured(StoreError):
    """Raised when an operator must act: a missing permission or bucket, a file system that breaks its contract."""

    code = "misconfigured"


class VersionsHidden(StoreMisconfigured):
    """Raised when older versions may not be listed, so that they cannot be deleted: refuse where some are kept, else warn."""

    code = "versions_hidden"

    def __init__(self, message: str, *, kept: bool) -> None:
        super().__init__(message, fix="grant s3:ListBucketVersions on the bucket")
        self.kept = kept


class BrokenPromise(StoreMisconfigured):
    """Raised when a store was found to lack a guarantee that the log needs: it is not safe for several relayers."""

    code = "broken_promise"
    fix = "use a store with exact conditional writes"


class KeyProviderUnavailable(RelayerError):
    """Raised when the service that has the relayer key does not respond: the start fails, a later one may succeed."""


class WrongRelayerKey(RelayerError):
    """Raised when the relayer key does not unwrap the store key, or the store has lost its store key: refuse to start."""


class CorruptNamespace(RelayerError):
    """Raised when a namespace's log contradicts itself: stop serving this namespace, keep the others."""


class AccountLost(CorruptNamespace):
    """Raised when an account has memories but no object with its revocations: accept only a list that the account signed.

    Its text may be shown to every client.
    """


class UpgradeRequired(RelayerError):
    """Raised when an object was written by a version this one does not understand: neither serve nor append (I12)."""


class NamespaceClosed(RelayerError):
    """Raised when the namespace was closed by an erasure."""


class WrongNamespaceKey(RelayerError):
    """Raised when a namespace secret does not match the namespace's key check."""


class WrongGeneration(RelayerError):
    """Raised when the keys were rotated: the client derives the secret of ``generation`` and sends again."""

    def __init__(self, generation: int) -> None:
        super().__init__(f"this namespace is kept under generation {generation} of its secret")
        self.generation = generation


class KeysAreRotated(RelayerError):
    """Raised when a rotation of the keys is not finished: the caller retries after ``retry_after`` seconds."""

    retry_after = 1.0


class WrongCustody(RelayerError):
    """Raised when a request uses the custody that the namespace was not created with."""


class EmbedderUnavailable(RelayerError):
    """Raised when no embedding can be computed now: store the text, respond degraded."""


class ModelUnavailable(RetryLater):
    """Raised when the language model does not respond now: the work waits, nothing is lost."""


class ModelAnswerUnusable(RelayerError):
    """Raised when the language model's response cannot be used; the response's text is in no message.

    Attributes:
        reason: ``refused``, ``truncated``, ``not_json``, ``wrong_shape``, ``empty`` or ``request_rejected``.
        tokens: number of tokens that the unusable response cost.
    """

    def __init__(self, reason: str, tokens: int = 0) -> None:
        super().__init__(f"the language model's answer cannot be used: {reason}")
        self.reason = reason
        self.tokens = tokens


class QueueFull(RetryLater):
    """Raised when a bounded queue is full: the caller retries after ``retry_after`` seconds."""


class AccountBusy(QueueFull):
    """Raised when an account has its share of requests waiting already: it gets no degraded response."""


class RateLimited(RetryLater):
    """Raised when a rate limit is exceeded, until it allows the next request."""


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
