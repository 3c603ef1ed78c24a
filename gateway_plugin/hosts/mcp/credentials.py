"""One agent's keys for this user's MCP servers, and tokens of HTTP clients, stored in two private files.

Only a person's command changes these files, never a response of a relayer: keys that are refused today may be accepted
tomorrow, and keys that were deleted by a relayer's mistake could not be recovered. `Pairing` and `reply_to` transfer keys
from the machine that has the secret to another machine.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, PublicKey, SealedBox
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway_plugin.errors import IdentityError
from gateway_plugin.hosting import (
    SECRET_VARIABLES,
    AgentHolder,
    KeyHolder,
    RootHolder,
    agent_name,
    config_directory,
    holder_for,
    locked,
    mint,
    parse_json,
    read_private,
    replace_private,
    secret_path,
    taken_variable,
)
from gateway_plugin.settings.model import PluginSettings
from relayer.wire import codec as base64url
from relayer.wire.codec import Malformed, NotAccepted
from relayer.wire.signing import Certificate

PAIRING_SECONDS: Final = 300
_DAY: Final = 86_400
_REQUEST: Final = "memrelay-pair-"
_REPLY: Final = "memrelay-keys-"
_LOGIN: Final = "memrelay-gateway mcp login"
_SHORTEST_TOKEN: Final = 20


class Credentials(BaseModel):
    """The content of `credentials_path`: an agent's secret, and the certificate that the account issued for it.

    Attributes:
        relayer: URL of the relayer that they were created for; choosing another one never changes the file.
        secret: its secret, 64 hex digits.
        certificate: the certificate, as `gateway_plugin.keys.identity.AgentHolder.parse` takes it.
        created_at: seconds since 1970, as is ``expires_at``.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    version: int = Field(1, ge=1, le=1)
    relayer: str
    account: str
    agent: str
    secret: str = Field(repr=False)
    certificate: str = Field(repr=False)
    label: str = ""
    created_at: int
    expires_at: int

    def holder(self) -> AgentHolder:
        """Return the keys. Raises `IdentityError` if secret or certificate is damaged."""
        try:
            return AgentHolder.parse(bytes.fromhex(self.secret), self.certificate)
        except (ValueError, IdentityError) as error:
            raise IdentityError(f"the saved keys are damaged; make new ones: {_LOGIN}") from error


def credentials_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the saved keys. Raises `IdentityError` as `config_directory` does."""
    return config_directory(environ) / "mcp-credentials.json"


def saved(environ: Mapping[str, str]) -> Credentials | None:
    """Return the saved keys, or None if there are none. Raises `IdentityError` if the file is readable by others, or damaged."""
    path = credentials_path(environ)
    try:
        return Credentials.model_validate_json(read_private(path))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise IdentityError(f"{path} holds no keys; make new ones: {_LOGIN}") from error


def stamp(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """Return a value that changes whenever keys are saved or removed."""
    try:
        found = credentials_path(environ).stat()
    except (OSError, IdentityError):
        return None
    return found.st_mtime_ns, found.st_ino


def save(environ: Mapping[str, str], credentials: Credentials) -> Path:
    """Save keys in place of existing ones, and return the path. Raises `IdentityError` if the file cannot be written."""
    path = credentials_path(environ)
    replace_private(path, credentials.model_dump_json(indent=2).encode() + b"\n")
    return path


def is_given(environ: Mapping[str, str], settings: PluginSettings) -> bool:
    """Return whether settings or environment name keys, which take precedence over saved ones."""
    variables = (*SECRET_VARIABLES, "MEMRELAY_SECRET_FILE")
    return settings.key is not None or bool(taken_variable()) or any(environ.get(name) for name in variables)


def find_holder(
    environ: MutableMapping[str, str], settings: PluginSettings, agent: str | None
) -> tuple[KeyHolder, Credentials | None]:
    """Return the keys for an MCP server, and the saved credentials if the keys are from these.

    Keys from settings or environment take precedence, then the saved keys of that agent, then the gateway's
    secret, which is created if there is none.

    Raises:
        IdentityError: there are no keys for that agent, or they cannot be read.
    """
    if not is_given(environ, settings):
        found = saved(environ)
        if found is not None and (agent is None or agent_name(agent, shown=True) == found.agent):
            return found.holder(), found
        if found is not None and not secret_path(environ).exists():
            raise IdentityError(
                f"the saved keys are agent {found.agent!r}'s; for another one: {_LOGIN} --agent NAME"
            )
    return holder_for(settings, environ), None


def issue(root: RootHolder, agent: str, *, relayer: str, days: int, label: str, now: int) -> Credentials:
    """Create credentials for an agent, by its normal name. They are valid until they expire or are revoked."""
    certificate = mint(root.root, agent, now=now, seconds=days * _DAY)
    return Credentials(
        version=1,
        relayer=relayer,
        account=root.account,
        agent=agent,
        secret=root.agent(agent).secret.hex(),
        certificate=base64url.encode(certificate.issue(root.root.account_identity)),
        label=label,
        created_at=now,
        expires_at=certificate.not_after,
    )


def serial(credentials: Credentials) -> bytes:
    """Return the serial of the certificate, by which it is revoked. Raises `IdentityError`."""
    try:
        return Certificate.verify(base64url.decode(credentials.certificate)).serial
    except (Malformed, NotAccepted) as error:
        raise IdentityError("the saved certificate is damaged; remove the file") from error


@dataclass(frozen=True, slots=True)
class Pairing:
    """A machine's request for keys: the code that it shows, and the key that opens the reply. Valid for five minutes.

    Attributes:
        key: private key; never leaves the process.
        state: random value that the reply must repeat.
        begun: seconds of the machine's monotonic clock.
    """

    key: PrivateKey = field(repr=False)
    state: str
    begun: float

    @classmethod
    def begin(cls) -> Pairing:
        """Create a request with a new key."""
        return cls(PrivateKey.generate(), secrets.token_hex(16), time.monotonic())

    def code(self, now: int) -> str:
        """Return the code that a person enters on the machine with the secret. It contains no secret."""
        asked = {"key": bytes(self.key.public_key).hex(), "state": self.state, "until": now + PAIRING_SECONDS}
        return _REQUEST + base64url.encode(json.dumps(asked).encode())

    def open(self, reply: str) -> Credentials:
        """Decrypt the reply. Raises `IdentityError`: it is no reply to this request, or came too late."""
        if time.monotonic() - self.begun > PAIRING_SECONDS:
            raise IdentityError(f"the reply came after more than five minutes; begin again: {_LOGIN} --pair")
        try:
            sealed = base64url.decode(reply.strip().removeprefix(_REPLY))
            opened: dict[str, Any] = parse_json(SealedBox(self.key).decrypt(sealed))
            found = Credentials.model_validate(opened["credentials"])
        except (Malformed, CryptoError, ValueError, KeyError, TypeError) as error:
            raise IdentityError("this is no reply to the code above; copy all of it") from error
        if not hmac.compare_digest(str(opened.get("state")), self.state):
            raise IdentityError("this is the reply to another code")
        found.holder()
        return found


def reply_to(code: str, credentials: Credentials, *, now: int) -> str:
    """Return the reply to a pairing code: the credentials, encrypted for the machine that showed the code.

    Raises:
        IdentityError: the code is invalid or too old.
    """
    try:
        asked = parse_json(base64url.decode(code.strip().removeprefix(_REQUEST)))
        key, state, until = PublicKey(bytes.fromhex(asked["key"])), str(asked["state"]), int(asked["until"])
    except (Malformed, ValueError, KeyError, TypeError) as error:
        raise IdentityError(f"CODE: it is none that `{_LOGIN} --pair` printed; copy all of it") from error
    # The clocks of the two machines may differ by this much. A larger difference makes every signed request fail anyway.
    if not now - PAIRING_SECONDS <= until <= now + 2 * PAIRING_SECONDS:
        raise IdentityError(f"CODE: it is older than five minutes; begin again there: {_LOGIN} --pair")
    said = json.dumps({"state": state, "credentials": credentials.model_dump(mode="json")}).encode()
    return _REPLY + base64url.encode(SealedBox(key).encrypt(said))


@dataclass(frozen=True, slots=True)
class ClientToken:
    """An HTTP client's token, of which the file contains only the digest.

    Attributes:
        agent: the agent whose memories it gives access to, in the form that commands take.
        digest: SHA-256, hex.
        created_at: seconds since 1970.
    """

    agent: str
    digest: str = field(repr=False)
    created_at: int
    label: str = ""

    @property
    def id(self) -> str:
        """Return the id by which a person names the token; it reveals nothing about the token."""
        return self.digest[:8]


class ClientTokens:
    """The tokens of this user's HTTP clients. The server applies changes made by a command immediately."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.path = config_directory(environ) / "mcp-tokens.json"
        self._read: tuple[tuple[int, int], tuple[ClientToken, ...]] = ((0, 0), ())

    def all(self) -> tuple[ClientToken, ...]:
        """Return all tokens, oldest first. Raises `IdentityError` if the file is readable by others, or damaged."""
        try:
            at = self.path.stat()
            if self._read[0] != (at.st_mtime_ns, at.st_ino):
                listed = parse_json(read_private(self.path))["tokens"]
                self._read = ((at.st_mtime_ns, at.st_ino), tuple(ClientToken(**one) for one in listed))
        except FileNotFoundError:
            return ()
        except (ValueError, KeyError, TypeError) as error:
            raise IdentityError(f"{self.path} is damaged; remove it and make new tokens") from error
        return self._read[1]

    def agent_of(self, token: str) -> str | None:
        """Return the agent of a token; None if the token is unknown or the file cannot be read."""
        if len(token) < _SHORTEST_TOKEN:
            return None
        digest = hashlib.sha256(token.encode()).hexdigest()
        try:
            known = self.all()
        except IdentityError:
            return None
        found = [one.agent for one in known if hmac.compare_digest(one.digest, digest)]
        return found[0] if found else None

    def add(self, agent: str, *, label: str, now: int) -> str:
        """Create a token and return it; it cannot be shown again. Raises `IdentityError`."""
        token = secrets.token_urlsafe(32)
        digest = hashlib.sha256(token.encode()).hexdigest()
        with locked(self.path):
            self._write((*self.all(), ClientToken(agent, digest, now, label)))
        return token

    def remove(self, token_id: str) -> bool:
        """Delete a token. Return False if there is none with this id. Raises `IdentityError`."""
        with locked(self.path):
            known = self.all()
            kept = tuple(one for one in known if one.id != token_id)
            if len(kept) == len(known):
                return False
            self._write(kept)
        return True

    def _write(self, tokens: tuple[ClientToken, ...]) -> None:
        listed = {"version": 1, "tokens": [asdict(one) for one in tokens]}
        replace_private(self.path, json.dumps(listed, indent=2).encode() + b"\n")
