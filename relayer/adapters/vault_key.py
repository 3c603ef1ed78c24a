"""The relayer key as a key of the Transit engine of HashiCorp Vault or OpenBao, which never leaves the service.

Address and token are those of Vault's own clients: ``VAULT_ADDR``, ``VAULT_TOKEN`` or the file ``~/.vault-token``, and
``VAULT_NAMESPACE``. The token's policy needs ``update`` on ``MOUNT/encrypt/NAME`` and ``MOUNT/decrypt/NAME``.
"""

from __future__ import annotations

import base64
import os
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import msgspec

from relayer.errors import ConfigurationError, KeyProviderUnavailable
from relayer.wire.calls import is_loopback

_SECONDS = 10.0
_MOST_BYTES = 64 * 1024


class _Data(msgspec.Struct):
    """The result of an operation: one of the two fields."""

    ciphertext: str = ""
    plaintext: str = ""


class _Answer(msgspec.Struct):
    """A response: a result, or messages."""

    data: _Data | None = None
    errors: tuple[str, ...] = ()


class VaultKey:
    """Wraps the store key with a key of a Transit engine, as the `KeyProvider` port.

    Args:
        key: the key's name, or ``MOUNT/NAME`` if the engine is not mounted at ``transit``.
    """

    name = "vault"

    def __init__(self, key: str) -> None:
        mount, _, name = key.rpartition("/")
        self._mount, self._key = mount or "transit", name

    async def wrap(self, store_key: bytes) -> bytes:
        """Encrypt the store key.

        Raises:
            ConfigurationError: address or token are missing, or the service refuses.
            KeyProviderUnavailable: it does not respond, or is sealed.
        """
        status, answer = await self._ask("encrypt", plaintext=base64.b64encode(store_key).decode())
        if status != HTTPStatus.OK or answer.data is None:
            raise self._failure("encrypt", status, answer)
        return answer.data.ciphertext.encode()

    async def unwrap(self, wrapped: bytes) -> bytes | None:
        """Decrypt the store key; None if it was encrypted with another key. Raises as `wrap`."""
        status, answer = await self._ask("decrypt", ciphertext=wrapped.decode("ascii", "replace"))
        if status == HTTPStatus.BAD_REQUEST:
            return None
        if status != HTTPStatus.OK or answer.data is None:
            raise self._failure("decrypt", status, answer)
        return base64.b64decode(answer.data.plaintext)

    async def _ask(self, operation: str, **fields: str) -> tuple[int, _Answer]:
        url = f"{_address()}/v1/{self._mount}/{operation}/{self._key}"
        headers = {"X-Vault-Token": _token(), "X-Vault-Request": "true"}
        if namespace := os.environ.get("VAULT_NAMESPACE"):
            headers["X-Vault-Namespace"] = namespace
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
                session.post(url, json=fields, headers=headers, allow_redirects=False) as response,
            ):
                content = await response.content.read(_MOST_BYTES)
                while not response.content.at_eof() and len(content) < _MOST_BYTES:
                    content += await response.content.read(_MOST_BYTES - len(content))
                return response.status, msgspec.json.decode(content or b"{}", type=_Answer)
        except (aiohttp.ClientError, TimeoutError) as error:
            why = f"{type(error).__name__}: {error}".rstrip(": ")
            raise KeyProviderUnavailable(f"VAULT_ADDR: Vault does not respond ({why})") from error
        except msgspec.MsgspecError as error:
            raise KeyProviderUnavailable("VAULT_ADDR: the response is not one of Vault's") from error

    def _failure(
        self, operation: str, status: int, answer: _Answer
    ) -> ConfigurationError | KeyProviderUnavailable:
        said = "; ".join(answer.errors)[:200]
        told = f"Vault does not {operation} with {self._mount}/{self._key}: {status} {said}".rstrip()
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return KeyProviderUnavailable(f"{told}; try again later")
        return ConfigurationError(
            f"MEMRELAY_RELAYER_KEY: {told}; check the key's name, VAULT_TOKEN and its policy (update on "
            f"{self._mount}/encrypt/{self._key} and {self._mount}/decrypt/{self._key})"
        )


def _address() -> str:
    address = os.environ.get("VAULT_ADDR", "").rstrip("/")
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigurationError(
            "VAULT_ADDR: give the address of Vault, as in https://vault.example.org:8200"
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ConfigurationError(
            "VAULT_ADDR: the store key is not sent over plain http to another machine: use https"
        )
    return address


def _token() -> str:
    token = os.environ.get("VAULT_TOKEN", "")
    if not token:
        try:
            token = (Path.home() / ".vault-token").read_text("ascii").strip()
        except (OSError, RuntimeError, UnicodeDecodeError):
            raise ConfigurationError("VAULT_TOKEN: give a token, or log in with vault login") from None
    if not token.isascii() or not token.isprintable():
        raise ConfigurationError("VAULT_TOKEN: contains no token")
    return token
