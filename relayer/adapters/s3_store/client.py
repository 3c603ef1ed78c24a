"""A boto3 client that does exactly what it is told, once.

boto3 would by itself repeat a conditional write whose answer was lost, and then report the loss of a race that it had
won; it would also follow a bucket to another region. Both are off: each call is one request, or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from relayer.adapters.s3_store.failures import Failure, NoSuccess, of_answer, of_silence
from relayer.errors import StoreMisconfigured

__all__ = ["Answer", "Client", "Patience"]

# Servers other than Amazon's mostly take any region, but a signature needs one.
_ANY_REGION = "us-east-1"
_CHUNK = 256 * 1024


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits in seconds: to connect, between two bytes of an answer, and for a whole call of the port."""

    connect: float = 5.0
    silence: float = 10.0
    call: float = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A success: the HTTP status, headers by lower-case name, boto3's fields, and the body of a read."""

    status: int
    headers: Mapping[str, str]
    fields: Mapping[str, Any]
    body: bytes = b""


class Client:
    """One bucket's server, asked by any number of threads at once."""

    def __init__(
        self, bucket: str, endpoint_url: str | None, region: str | None, connections: int, patience: Patience
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
            session = boto3.session.Session(region_name=region)
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
        self._s3.meta.events.register_last("before-parameter-build.s3", _stay_where_told)

    @property
    def endpoint_url(self) -> str:
        """The URL that is asked, without credentials."""
        return str(self._s3.meta.endpoint_url)

    def ask(self, operation: str, **parameters: Any) -> Answer:
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
        return Answer(int(about["HTTPStatusCode"]), about["HTTPHeaders"], answer, body)

    def close(self) -> None:
        """Give back the connections."""
        self._s3.close()


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
