"""The secrets of a relayer: its own key, the keys of model endpoints, and the token for metrics.

Each comes from the environment or from a file of the operator; the relayer key may also be in the data directory, where
`require_relayer_key` creates it for a new store. `check_kept` refuses files that other users can access. The relayer key may
also be in a key management service; then the setting is a `KeyAddress`. The printable copy of the relayer key is made by
`relayer.wire.sheet`.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import SecretStr

from relayer.errors import ConfigurationError
from relayer.log.objects import Layout
from relayer.settings.config import RelayerSettings, objects_directory
from relayer.telemetry import log
from relayer.wire.codec import InvalidSecret
from relayer.wire.sealing import SECRET_SIZE, parse_secret

_GROUP, _OTHERS, _OTHERS_WRITE = 0o070, 0o007, 0o002
_SHORTEST_TOKEN = 16


_Scheme = Literal["awskms", "vault"]


@dataclass(frozen=True, slots=True)
class KeyAddress:
    """A relayer key that is in a key management service: its kind, and the name of the key there.

    Example:
        >>> KeyAddress.parse("awskms:alias/memrelay")
        KeyAddress(scheme='awskms', name='alias/memrelay')
        >>> str(KeyAddress("vault", "memrelay"))
        'vault:memrelay'
    """

    scheme: _Scheme
    name: str

    @classmethod
    def parse(cls, text: str) -> KeyAddress | None:
        """Parse an address; None if the text is none."""
        given, _, name = text.strip().partition(":")
        for scheme, pattern in _KEY_NAME.items():
            if given == scheme and pattern.fullmatch(name):
                return cls(scheme, name)
        return None

    def __str__(self) -> str:
        """Return the address as it is configured."""
        return f"{self.scheme}:{self.name}"


_KEY_NAME: dict[_Scheme, re.Pattern[str]] = {
    "awskms": re.compile(r"[A-Za-z0-9:/_+=,.@-]{1,2048}"),
    "vault": re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*"),
}

RelayerKey = bytes | KeyAddress
"""The relayer key: 32 bytes, or its address in a key management service."""

EndpointName = Literal["embeddings", "model", "fallback_model"]
"""An endpoint, by the prefix of the names of its settings."""


def generated_key_file(data: Path) -> Path:
    """Return the path where `make_relayer_key` stores the key of a data directory."""
    return data / "relayer.key"


def find_relayer_key(settings: RelayerSettings) -> RelayerKey | None:
    """Return the configured key, or the one that was created in the data directory; None if there is none.

    The key of a bucket must be configured.

    Raises:
        ConfigurationError: a file cannot be read, is accessible to other users, or holds no key.
    """
    if settings.relayer_key is not None:
        return _parse_key(settings.relayer_key.get_secret_value(), "MEMRELAY_RELAYER_KEY")
    if settings.relayer_key_file is not None:
        return _read_key(settings.relayer_key_file.expanduser(), "MEMRELAY_RELAYER_KEY_FILE")
    if settings.store is not None:
        return None  # a key in a data directory belongs to that directory's store
    generated = generated_key_file(settings.data.expanduser())
    return _read_key(generated, "the relayer key") if generated.exists() else None


def require_relayer_key(settings: RelayerSettings, say: Callable[[str], None]) -> RelayerKey:
    """Return the relayer key, and create one for a new data directory.

    Raises:
        ConfigurationError: a key is required but there is none, or as `find_relayer_key` and `make_relayer_key`.
    """
    if settings.store is None:
        folder = settings.data.expanduser()
        if folder.exists() and not folder.is_dir():
            raise ConfigurationError(f"--data: {folder} is not a directory")
        check_kept(folder, "the data directory")
    key = find_relayer_key(settings)
    if key is not None:
        return key
    if settings.store is not None:
        raise ConfigurationError(
            "MEMRELAY_RELAYER_KEY or MEMRELAY_RELAYER_KEY_FILE: a relayer with a bucket needs an explicit key, because the bucket is unreadable if the key is lost with this machine; create one with memrelay keys make FILE"
        )
    data = settings.data.expanduser()
    if (objects_directory(data) / Layout.relayer()).exists():
        raise ConfigurationError(
            f"the store in {data} has a relayer key, but {generated_key_file(data)} is missing: restore it, or give the key as MEMRELAY_RELAYER_KEY"
        )
    key = make_relayer_key(data)
    say(
        f"created the relayer key in {generated_key_file(data)}; without it this store cannot be read: keep a copy "
        "(memrelay keys recovery)"
    )
    return key


def make_relayer_key(data: Path) -> bytes:
    """Create a key file (0600) in the data directory, unless there is one; return the key that it holds afterwards.

    Raises:
        ConfigurationError: the directory cannot be written.
    """
    final = generated_key_file(data)
    make_key_file(final)
    return _read(final, "the relayer key")


def read_new_key(file: Path) -> RelayerKey:
    """Return the relayer key, or the address of one, in a file; raises `ConfigurationError` as `find_relayer_key` does."""
    return _read_key(file, "--new-key-file", "the new relayer key")


def read_key(file: Path) -> bytes:
    """Return the relayer key in a file; raises `ConfigurationError` as `find_relayer_key` does."""
    check_kept(file, "the relayer key")
    return _read(file, "the relayer key")


def make_key_file(final: Path, key: bytes | None = None) -> bool:
    """Create a key file (0600) if it does not exist yet; returns whether it was created.

    Two processes that start at the same time get the same key, because only one of them can create the hard link. Without a
    key it generates one.

    Raises:
        ConfigurationError: the directory cannot be written.
    """
    folder = final.parent
    draft = folder / f"{final.name}.{secrets.token_hex(8)}"
    made = True
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write((key or secrets.token_bytes(SECRET_SIZE)).hex() + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            final.hardlink_to(draft)
        except FileExistsError:
            made = False
        finally:
            draft.unlink()
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise ConfigurationError(
            f"no relayer key can be created in {folder} ({error.strerror}): choose a writable directory"
        ) from error
    return made


def check_kept(path: Path, what: str) -> None:
    """Refuse a file that other users can read or write, or a directory that they can write, if this process could correct it.

    A file that has another owner or is on a read-only mount, such as a mounted secret or volume, is the responsibility of its
    owner; it only gets a warning in the log. The group of such a file may read it (Kubernetes' ``fsGroup``). The group of any
    directory may write to it.

    Raises:
        ConfigurationError: with the command that corrects it.
    """
    try:
        found = path.stat()
        mounted = found.st_uid != os.geteuid() or bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return  # reading it will raise the error
    folder = stat.S_ISDIR(found.st_mode)
    open_to = found.st_mode & (_OTHERS_WRITE if folder else _OTHERS if mounted else _OTHERS | _GROUP)
    if open_to and mounted:
        log.warning("open_to_other_users", what=what, mode=oct(stat.S_IMODE(found.st_mode)))
    elif open_to:
        verb, mode = ("written", "700") if folder else ("read", "600")
        raise ConfigurationError(f"{what} can be {verb} by other users: chmod {mode} {path}")


def find_model_key(settings: RelayerSettings, which: EndpointName) -> str:
    """Return the API key of an endpoint; empty if there is none, as for a server of one's own.

    A fallback model at the URL of the model uses the model's key, unless it has its own.

    Raises:
        ConfigurationError: the file cannot be read, or its content cannot be a key.
    """
    file = getattr(settings, f"{which}_api_key_file")
    if which == "fallback_model" and file is None:
        return find_model_key(settings, "model") if settings.fallback_model_url is None else ""
    return _one_word(f"MEMRELAY_{which.upper()}_API_KEY", getattr(settings, f"{which}_api_key", None), file)


def find_metrics_token(settings: RelayerSettings) -> str:
    """Return the token that clients of the metrics page must send; empty if there is none.

    Raises:
        ConfigurationError: the file cannot be read, or the token is too short to be secure.
    """
    name = "MEMRELAY_METRICS_TOKEN"
    token = _one_word(name, settings.metrics_token, settings.metrics_token_file)
    if token and len(token) < _SHORTEST_TOKEN:
        raise ConfigurationError(
            f"{name}: has fewer than {_SHORTEST_TOKEN} characters; create one with openssl rand -hex 32"
        )
    return token


def _read(path: Path, source: str) -> bytes:
    return _parse(_text_of(path, source), f"{source} ({path})")


def _read_key(path: Path, source: str, what: str = "the relayer key") -> RelayerKey:
    check_kept(path, what)
    return _parse_key(_text_of(path, source), f"{source} ({path})")


def _text_of(path: Path, source: str) -> str:
    try:
        return path.read_text("ascii")
    except OSError as error:
        raise ConfigurationError(f"{source}: {path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{source}: {path} must hold 64 hex digits or base64") from error


def _parse_key(text: str, source: str) -> RelayerKey:
    return KeyAddress.parse(text) or _parse(text, source)


def _parse(text: str, source: str) -> bytes:
    try:
        return parse_secret(text, source=source)
    except InvalidSecret as error:
        raise ConfigurationError(str(error)) from None


def _one_word(name: str, given: SecretStr | None, file: Path | None) -> str:
    key = "" if given is None else given.get_secret_value()
    if file is not None:
        name = f"{name}_FILE"
        try:
            key = file.expanduser().read_text("ascii")
        except OSError as error:
            raise ConfigurationError(f"{name}: {file} cannot be read ({error.strerror})") from error
        except UnicodeDecodeError:
            raise ConfigurationError(f"{name}: {file} contains no key: a key is printable ASCII") from None
    key = key.strip()
    if (
        (file is not None and not key)
        or not key.isascii()
        or any(not char.isprintable() or char == " " for char in key)
    ):
        raise ConfigurationError(f"{name}: contains no key: a key is one word of printable ASCII")
    return key
