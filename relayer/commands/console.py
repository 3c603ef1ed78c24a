"""What the commands share: how one ends that cannot do what it was asked for.

One sentence, and an exit code that says which kind it is.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from relayer.errors import RelayerError, StoreUnavailable

_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
NOT_WELL = 1
MISCONFIGURED = 2
UNAVAILABLE = 3
STOPPED = 130  # as shells say it of SIGINT
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
        "tokenizers",
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
        fail(str(error), UNAVAILABLE)
    except RelayerError as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("stopped; running it again is safe, and goes on where there is something to go on from", STOPPED)
    except OSError as error:
        # A reader that went away, as `head` does, is for the command line's own ending.
        if error.errno not in _UNWRITABLE:
            raise
        fail(f"standard output cannot be written ({error.strerror}); what was asked for may be done")


def fail(sentence: str, code: int = MISCONFIGURED) -> NoReturn:
    """Print a sentence and end the process."""
    typer.echo(f"memrelay: {sentence}", err=True)
    raise typer.Exit(code) from None
