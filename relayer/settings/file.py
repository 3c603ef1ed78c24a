"""The file of settings: TOML, the same names as on the command line, and no keys."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from relayer.errors import ConfigurationError
from relayer.settings.values import PREFIX

__all__ = ["SettingsFile"]

_SECRETS = frozenset({"relayer_key", "embeddings_api_key", "model_api_key", "metrics_token"})


class SettingsFile(PydanticBaseSettingsSource):
    """The TOML file named by ``--config``."""

    def __init__(self, settings_cls: type[BaseSettings], path: Path | None) -> None:
        super().__init__(settings_cls)
        self._values = {} if path is None else _read_file(path, settings_cls)

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return one value."""
        del field
        return self._values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return all values."""
        return self._values


def _read_file(path: Path, settings_cls: type[BaseSettings]) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"--config: {path} cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--config: {path} is not TOML: {error}") from error
    known = set(settings_cls.model_fields) - {"config", *_SECRETS}
    renamed = {name.replace("-", "_"): value for name, value in values.items()}
    for name in renamed:
        if name in _SECRETS:
            raise ConfigurationError(
                f"{name} in {path}: a key does not belong in this file; use {PREFIX}{name.upper()}_FILE"
            )
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
            raise ConfigurationError(f"{name} in {path} is not a setting: {hint}")
    return renamed
