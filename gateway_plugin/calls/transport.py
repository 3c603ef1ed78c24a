"""One attempt: sign a request, send it, read a bounded answer. No retries, no redirects, no meaning."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import httpx

from gateway_plugin import __version__
from gateway_plugin.errors import RelayerUnreachable, RelayerUntrusted, SettingsError, SettingsIssue
from gateway_plugin.identity import Identity
from relayer.wire import signing
from relayer.wire.loopback import is_loopback
from relayer.wire.signing import normal_authority


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A relayer's address.

    Attributes:
        scheme: ``http``, on loopback only, or ``https``.
        authority: host and port in normal form.
        loopback: whether the address never leaves this machine.
    """

    scheme: str
    authority: str
    loopback: bool

    @property
    def origin(self) -> str:
        """Scheme and authority, as a URL without a path."""
        return f"{self.scheme}://{self.authority}"

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """Parse a URL.

        Raises:
            SettingsError: it is none; it would send keys in the clear; or it has a path. A path is refused because
                the signature covers the target that the relayer sees, which a proxy that strips a prefix changes:
                give the relayer a host name of its own.
        """
        try:
            parts = urlsplit(url.strip())
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise _wrong("is no URL") from error
        if parts.scheme not in {"http", "https"} or not host or parts.username is not None:
            raise _wrong("is no URL of a relayer")
        if parts.path.strip("/") or parts.query or parts.fragment:
            raise _wrong("has a path; a relayer needs a host name, or a port, of its own")
        loopback = is_loopback(host)
        if parts.scheme == "http" and not loopback:
            raise _wrong("would send keys unencrypted; http is for this machine's loopback address only")
        name = f"[{host}]" if ":" in host else host
        authority = normal_authority(name if port is None else f"{name}:{port}", parts.scheme)
        return cls(parts.scheme, authority, loopback)


def _wrong(problem: str) -> SettingsError:
    return SettingsError(
        SettingsIssue("url", problem, "write https://host, or http://127.0.0.1:8787 on this machine")
    )


MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
_REQUEST_HEADERS: Final = {"accept": "application/json", "user-agent": f"memrelay-gateway/{__version__}"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


def signed_headers(
    identity: Identity,
    endpoint: Endpoint,
    *,
    method: str,
    target: str,
    body: bytes,
    memory_key: str,
    now: int,
    nonce: bytes | None = None,
    route: str = "",
) -> dict[str, str]:
    """Return the headers that authenticate a request.

    Args:
        identity: who signs.
        endpoint: whom the request is for; a signature is worth nothing elsewhere.
        method: upper case.
        target: path and query exactly as they are sent.
        body: as it is sent; empty when there is none.
        memory_key: the ``memory-key`` header, empty when the route needs none.
        now: seconds since the epoch, by the relayer's clock as far as it is known.
        nonce: 16 random bytes that no other request has; made here unless they are needed before.
        route: the identity's, if it is at hand.
    """
    digest = hashlib.sha256(body).digest()
    certificate = identity.certificate_header(now)
    signature = signing.sign(
        identity.keys.identity,
        method=method,
        authority=endpoint.authority,
        target=target,
        body_sha256=digest,
        created=now,
        nonce=nonce or secrets.token_bytes(signing.NONCE_SIZE),
        certificate=certificate,
        memory_key=memory_key,
    )
    headers = {
        signing.CERTIFICATE_HEADER: certificate,
        signing.DIGEST_HEADER: signing.content_digest(digest),
        signing.SIGNATURE_HEADER: signature.header(),
    }
    if memory_key:
        headers |= {signing.KEY_HEADER: memory_key, signing.ROUTE_HEADER: route or identity.route}
    return headers


class Transport:
    """An HTTP connection pool to one relayer.

    Args:
        endpoint: the relayer.
        http: a client to use instead of an own one; not closed by `aclose`.
    """

    def __init__(self, endpoint: Endpoint, http: httpx.AsyncClient | None = None) -> None:
        self.endpoint = endpoint
        self._own = http is None
        # A proxy named by the environment has no business between two processes of one machine; an authority named by
        # SSL_CERT_FILE has.
        self._http = http or httpx.AsyncClient(
            trust_env=not endpoint.loopback,
            verify=httpx.create_ssl_context(trust_env=True) if endpoint.scheme == "https" else False,
            follow_redirects=False,
        )

    async def send(
        self, method: str, target: str, *, body: bytes = b"", headers: Mapping[str, str], patience: float
    ) -> Answer:
        """Send one request and read its answer.

        Args:
            method: upper case.
            target: path and query, already percent-encoded; sent as it is, because it was signed.
            body: JSON, or empty; ``headers`` may say that it is something else.
            headers: in addition to the plain ones.
            patience: seconds for each wait of the connection; the caller bounds the whole.

        Raises:
            RelayerUntrusted: the TLS certificate does not verify.
            RelayerUnreachable: no complete HTTP answer came, or one longer than any relayer's.
        """
        typed = {"content-type": "application/json"} if body else {}
        request = self._http.build_request(
            method,
            httpx.URL(self.endpoint.origin).copy_with(raw_path=target.encode("ascii")),
            content=body or None,
            headers={**_REQUEST_HEADERS, **typed, **headers},
            timeout=patience,
        )
        async with self._sent(request) as response:
            content = bytearray()
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > MAX_ANSWER_BYTES:
                    raise RelayerUnreachable(
                        f"{self.endpoint.origin} sent more than {MAX_ANSWER_BYTES} bytes"
                    )
            return Answer(response.status_code, dict(response.headers), bytes(content))

    @contextlib.asynccontextmanager
    async def stream(
        self, method: str, target: str, *, body: bytes, headers: Mapping[str, str], patience: float
    ) -> AsyncIterator[tuple[Answer, AsyncIterator[bytes]]]:
        """Send one request and read a good answer piece by piece; any other is whole in `Answer`. Raises as `send`."""
        request = self._http.build_request(
            method,
            httpx.URL(self.endpoint.origin).copy_with(raw_path=target.encode("ascii")),
            content=body or None,
            headers={**_REQUEST_HEADERS, "content-type": "application/json", **headers},
            timeout=patience,
        )
        async with self._sent(request) as response:
            content = b"" if response.status_code < 300 else await response.aread()
            yield Answer(response.status_code, dict(response.headers), content), response.aiter_bytes()

    @contextlib.asynccontextmanager
    async def _sent(self, request: httpx.Request) -> AsyncIterator[httpx.Response]:
        try:
            response = await self._http.send(request, stream=True, follow_redirects=False)
            try:
                yield response
            finally:
                await response.aclose()
        except httpx.ConnectError as error:
            if _is_untrusted(error):
                raise RelayerUntrusted(
                    f"the TLS certificate of {self.endpoint.origin} is not trusted by this machine; if its authority is "
                    "your own, set SSL_CERT_FILE to that authority's PEM file"
                ) from error
            raise RelayerUnreachable(f"no relayer answers at {self.endpoint.origin}") from error
        except (httpx.HTTPError, httpx.StreamError) as error:
            # The kind of failure is safe to show; its text may hold a URL of a proxy with credentials.
            raise RelayerUnreachable(
                f"the connection to {self.endpoint.origin} failed ({type(error).__name__})"
            ) from error

    async def aclose(self) -> None:
        """Close the connections."""
        if self._own:
            await self._http.aclose()


def _is_untrusted(error: BaseException | None) -> bool:
    """Whether a certificate that does not verify is behind a failed connection."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None
