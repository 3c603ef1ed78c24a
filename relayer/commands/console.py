"""Error reporting that all commands share.

A failing command prints one sentence, and its exit code says what kind of failure it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from relayer.errors import KeyProviderUnavailable, RelayerError, StoreUnavailable
from relayer.wire.command_line import STOPPED, UNREACHABLE, USAGE, fail

EXTRA = "pip install '.[relayer]' in a clone of memrelay"
_EXTRA_PACKAGES = frozenset(
    {
        "aiohttp",
        "boto3",
        "botocore",
        "msgspec",
        "numpy",
        "onnxruntime",
        "prometheus_client",
        "pydantic_settings",
        "structlog",
        "usearch",
        "uvloop",
    }
)


@contextmanager
def explained() -> Iterator[None]:
    """Convert errors in the block, and packages that are not installed, to a message and an exit code."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA_PACKAGES:
            raise
        fail(USAGE, f"{error.name} is not installed; a relayer needs more than the plugin: {EXTRA}")
    except (StoreUnavailable, KeyProviderUnavailable) as error:
        fail(UNREACHABLE, str(error))
    except RelayerError as error:
        fail(USAGE, str(error))
    except KeyboardInterrupt:
        fail(STOPPED, "stopped; it is safe to run it again, and it continues where possible")
