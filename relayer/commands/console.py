"""What the commands share: how one ends that cannot do what it was asked for.

One sentence, and an exit code that says which kind it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from relayer.errors import RelayerError, StoreUnavailable
from relayer.wire import command_line
from relayer.wire.command_line import FAILED, STOPPED, UNREACHABLE, USAGE

NOT_WELL = FAILED
UNAVAILABLE = UNREACHABLE
Tell = Callable[..., None]
"""Prints what a command did: ``tell(document, *lines)``, the document for programs or the lines for people."""
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
    """Turn errors of the block into a sentence and the end of the process; also a package that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA_PACKAGES:
            raise
        fail(f"{error.name} is not installed; a relayer needs more than the plugin: {EXTRA}")
    except StoreUnavailable as error:
        fail(str(error), UNREACHABLE)
    except RelayerError as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("stopped; running it again is safe, and goes on where there is something to go on from", STOPPED)


def fail(sentence: str, code: int = USAGE) -> NoReturn:
    """Print a sentence and end the process."""
    command_line.fail(code, sentence)
