"""The file of quotas: TOML, a table for each account that may keep more, or less, than the others."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from relayer.errors import ConfigurationError
from relayer.services.quotas import Quota
from relayer.wire.keys import is_account_id

__all__ = ["read_quotas"]

_NAMES = ("bytes", "namespaces", "memories")


def read_quotas(path: Path | None) -> Mapping[str, Quota]:
    """Return the quotas of a file by account; none without one.

    Raises:
        ConfigurationError: it cannot be read, or says something else than ``["0x..."]`` with bytes, namespaces and memories.
    """
    if path is None:
        return {}
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"--quotas: {path} cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--quotas: {path} is not TOML: {error}") from error
    return {account: _quota(path, account, table) for account, table in tables.items()}


def _quota(path: Path, account: str, table: object) -> Quota:
    if not is_account_id(account) or not isinstance(table, dict):
        raise ConfigurationError(
            f'--quotas: {path} must hold tables such as ["0x..."], named by account ids of 0x and 64 lower-case hex digits'
        )
    for name, value in table.items():
        if name not in _NAMES or not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ConfigurationError(
                f"--quotas: {name} of {account[:10]}... in {path}: give {', '.join(_NAMES)} as whole numbers, 0 for no limit"
            )
    return Quota(**table)
