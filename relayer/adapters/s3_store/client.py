"""What makes requests, and a boto3 client that does exactly what it is told, once.

boto3 would by itself repeat a conditional write whose answer was lost, and then report the loss of a race that it had
won; it would also follow a bucket to another region. Both are off: each call is one request, or none.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore.config import Config
from botocore.credentials import Credentials as LastingCredentials
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from botocore.httpsession import get_cert_path
from botocore.parsers import ResponseParserError
from botocore.utils import get_environ_proxies
from urllib3.exceptions import HTTPError

from relayer.adapters.s3_store.failures import Failure, NoSuccess, of_answer, of_silence
from relayer.errors import StoreMisconfigured

_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key at one moment; temporary ones have a token."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


def signed_headers(
    method: str,
    host: str,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    credentials: Credentials,
    region: str,
    now: float,
) -> dict[str, str]:
    """Return ``headers`` with those that sign them, the path and the body.

    Args:
        method: of the request.
        host: with its port unless that is the scheme's own.
        path: percent-encoded, as it is sent; there is no query.
        body: its SHA-256 is part of the signature, so a server refuses what was changed on the way.
        headers: by lower-case name, without surrounding spaces; all of them are signed.
        credentials: to sign with.
        region: that the server signs for.
        now: seconds since the epoch; servers accept 15 minutes of difference.
    """
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    digest = hashlib.sha256(body).hexdigest()
    all_headers = {**headers, "host": host, "x-amz-content-sha256": digest, "x-amz-date": moment}
    if credentials.token is not None:
        all_headers["x-amz-security-token"] = credentials.token
    ordered = sorted(all_headers.items())
    names = ";".join(name for name, _ in ordered)
    lines = "".join(f"{name}:{value}\n" for name, value in ordered)
    request = hashlib.sha256(f"{method}\n{path}\n\n{lines}\n{names}\n{digest}".encode()).hexdigest()
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    key = _signing_key(credentials.secret_key, moment[:8], region)
    signature = hmac.digest(key, f"{_ALGORITHM}\n{moment}\n{scope}\n{request}".encode(), "sha256").hex()
    all_headers["authorization"] = (
        f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return all_headers


@lru_cache(maxsize=8)
def _signing_key(secret_key: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret_key}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


# Servers other than Amazon's mostly take any region, but a signature needs one.
_ANY_REGION = "us-east-1"
_CHUNK = 256 * 1024
_SOME_KEY = "0"
# Amazon's suffix for buckets whose requests are signed by sessions.
_DIRECTORY_BUCKET = "--x-s3"
_PLAIN_SIGNATURE = re.compile(
    r"AWS4-HMAC-SHA256 Credential=[^/,]+/[0-9]{8}/([^/,]+)/s3/aws4_request, "
    r"SignedHeaders=host;x-amz-content-sha256;x-amz-date(?:;x-amz-security-token)?, "
)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits in seconds: to connect, between two bytes of an answer, and for a whole call of the port."""

    connect: float = 5.0
    silence: float = 10.0
    call: float = 30.0


@dataclass(frozen=True, slots=True)
class StoreAnswer:
    """A success: the HTTP status, headers by lower-case name, boto3's fields, and the body of a read."""

    status: int
    headers: Mapping[str, str]
    fields: Mapping[str, Any]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Route:
    """How a signed request reaches the objects of a bucket.

    Attributes:
        host: to connect to, with ``port``.
        port: of the host.
        authority: the ``Host`` header.
        path: what stands before a key, percent-encoded, with a slash at its end.
        region: that requests are signed for.
        authorities: PEM file or directory of the certificate authorities to trust; None means no TLS.
    """

    host: str
    port: int
    authority: str
    path: str
    region: str
    authorities: str | None


_METHODS = {"get_object": "GET", "put_object": "PUT"}
_HEADERS = {
    "ContentMD5": "content-md5",
    "IfNoneMatch": "if-none-match",
    "IfMatch": "if-match",
    "Range": "range",
}
_KNOWN = {"Key", "Body", *_HEADERS}
# An error's body is a few hundred bytes, and its code stands near the beginning.
_CODE = re.compile(rb"<Code>\s*([A-Za-z0-9.]{1,64})\s*</Code>")
_LOOKED_AT = 4096


@dataclass(frozen=True, slots=True)
class Request:
    """A signed request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


def is_plain(operation: str, parameters: Mapping[str, Any]) -> bool:
    """Whether a request is a read or write of one object, for which `request_of` is made."""
    return operation in _METHODS and parameters.keys() <= _KNOWN


def request_of(
    route: Route, credentials: Credentials, operation: str, parameters: Mapping[str, Any], now: float
) -> Request:
    """Sign a request that `is_plain`, named as boto3 names it, at a time in seconds since the epoch."""
    method, path = _METHODS[operation], route.path + parameters["Key"]
    body: bytes = parameters.get("Body", b"")
    headers = signed_headers(
        method,
        route.authority,
        path,
        body,
        {_HEADERS[name]: text for name, text in parameters.items() if name in _HEADERS},
        credentials=credentials,
        region=route.region,
        now=now,
    )
    headers["user-agent"] = "memrelay"
    return Request(method, path, headers, body)


def answer_of(status: int, headers: Mapping[str, str], body: bytes) -> StoreAnswer:
    """Return an answer, its headers by lower-case name; raises `NoSuccess` if it is none."""
    if 200 <= status < 300:
        return StoreAnswer(status, headers, {}, body)
    code = _CODE.search(body[:_LOOKED_AT])
    word = str(status) if code is None else code.group(1).decode()
    raise NoSuccess(Failure(status, word, sent=True, headers=headers))


Ask = Callable[..., Awaitable[StoreAnswer]]
"""Makes one request, as `Requester.ask`."""


class LoopRequester(Protocol):
    """Makes the requests for single objects of one bucket on one event loop."""

    async def ask(self, operation: str, **parameters: Any) -> StoreAnswer:
        """Make one request; cancelled, it is broken off, and may have been answered. Raises `NoSuccess`."""
        ...

    def close(self) -> None:
        """Give back the connections."""
        ...


class Requester(Protocol):
    """Makes the requests for one bucket; may be used by any number of threads at once."""

    @property
    def endpoint_url(self) -> str:
        """The URL that is asked, without credentials."""
        ...

    def ask(self, operation: str, **parameters: Any) -> StoreAnswer:
        """Make one request, named as boto3 names it, or none; raises `NoSuccess`."""
        ...

    def for_loop(self) -> LoopRequester | None:
        """Return what asks for single objects on the running event loop; None, perhaps for now, where only threads can ask."""
        ...

    def close(self) -> None:
        """Give back the connections."""
        ...


class Client:
    """A `Requester` that leaves everything to boto3."""

    def __init__(
        self, bucket: str, endpoint_url: str | None, region: str | None, connections: int, patience: Timeouts
    ) -> None:
        config = Config(
            connect_timeout=patience.connect,
            read_timeout=patience.silence,
            max_pool_connections=connections,
            retries={"total_max_attempts": 1, "mode": "standard"},
            # Checksums beyond the signature are an extension that not every server understands.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        try:
            core = botocore.session.get_session()
            session = boto3.session.Session(botocore_session=core, region_name=region)
            self._s3: Any = session.client(
                "s3",
                region_name=region or session.region_name or _ANY_REGION,
                endpoint_url=endpoint_url,
                config=config,
            )
        except (BotoCoreError, ValueError) as error:
            # Their texts name settings and files, not what stands in them.
            raise StoreMisconfigured(
                f"the S3 client cannot be set up: {error}. Look at --endpoint-url, --region and the AWS_* variables"
            ) from error
        self._bucket = bucket
        self._core = core
        self._s3.meta.events.register_last("before-parameter-build.s3", _stay_where_told)

    @property
    def endpoint_url(self) -> str:
        """The URL that is asked, without credentials."""
        return str(self._s3.meta.endpoint_url)

    def ask(self, operation: str, **parameters: Any) -> StoreAnswer:
        """Make one request, named as boto3 names it; raises `NoSuccess`."""
        try:
            answer: dict[str, Any] = getattr(self._s3, operation)(Bucket=self._bucket, **parameters)
            stream = answer.pop("Body", None)
            body = b"" if stream is None else _drain(stream)
        except ClientError as error:
            raise NoSuccess(of_answer(error.response)) from error
        except (BotoCoreError, HTTPError, OSError) as error:
            raise NoSuccess(of_silence(error)) from error
        except ResponseParserError as error:
            raise NoSuccess(Failure(status=200, code="NotS3", sent=True)) from error
        about = answer.pop("ResponseMetadata")
        return StoreAnswer(int(about["HTTPStatusCode"]), about["HTTPHeaders"], answer, body)

    def for_loop(self) -> None:
        """Return None: boto3 blocks."""

    def close(self) -> None:
        """Give back the connections."""
        self._s3.close()

    def credentials(self) -> Credentials:
        """Return credentials that are valid now; may ask the machine for new ones. Raises boto3's errors."""
        found = self._core.get_credentials()
        if found is None:
            raise NoCredentialsError
        frozen = found.get_frozen_credentials()
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token)

    def lasting_credentials(self) -> Credentials | None:
        """Return credentials that nobody needs to renew; None where there are others."""
        is_lasting = type(self._core.get_credentials()) is LastingCredentials
        return self.credentials() if is_lasting else None

    def route(self) -> Route | None:
        """Say where boto3 would send a read of an object; None when it takes more than a signature to do the same.

        Sends nothing. Raises boto3's errors, for want of credentials too. No other thread may read meanwhile.
        """
        if self._bucket.endswith(_DIRECTORY_BUCKET):
            return None
        hook = "before-send.s3.GetObject"
        self._s3.meta.events.register_first(hook, _keep)
        try:
            self._s3.get_object(Bucket=self._bucket, Key=_SOME_KEY)
        except _Kept as kept:
            return self._route_of(kept.url, kept.authorization)
        finally:
            self._s3.meta.events.unregister(hook, _keep)
        return None

    def _route_of(self, url: str, authorization: str) -> Route | None:
        parts = urlsplit(url)
        # Others than this one are for several regions, or an older kind.
        signed = _PLAIN_SIGNATURE.match(authorization)
        proxied = parts.scheme in get_environ_proxies(url)
        if signed is None or not parts.hostname or parts.query or proxied:
            return None
        secure = parts.scheme == "https"
        authorities = self._core.get_config_variable("ca_bundle") or get_cert_path(True)
        return Route(
            host=parts.hostname,
            port=parts.port or (443 if secure else 80),
            authority=parts.netloc,
            path=parts.path.removesuffix(_SOME_KEY),
            region=signed.group(1),
            authorities=authorities if secure else None,
        )


class _Kept(Exception):
    """Raised inside this module instead of sending a request, with what matters of it."""

    def __init__(self, url: str, authorization: str) -> None:
        super().__init__()
        self.url = url
        self.authorization = authorization


def _keep(request: Any, **_: Any) -> None:
    said = request.headers.get("Authorization", b"")
    raise _Kept(request.url, said.decode() if isinstance(said, bytes) else said)


def _drain(stream: Any) -> bytes:
    """Read a body to its end; boto3 compares its length with the one that was announced."""
    try:
        chunks: list[bytes] = []
        while chunk := stream.read(_CHUNK):
            chunks.append(chunk)
        return b"".join(chunks)
    finally:
        stream.close()


def _stay_where_told(context: dict[str, Any], **_: Any) -> None:
    """Make boto3 believe that it has followed a redirection already, which it does once per request at most."""
    context.setdefault("s3_redirect", {})["redirected"] = True
