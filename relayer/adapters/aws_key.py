"""The relayer key as a symmetric key of AWS KMS, which never leaves the service.

Credentials, region and endpoint are boto3's own: ``AWS_*`` variables, the machine's role, ``AWS_ENDPOINT_URL_KMS``. The role
needs ``kms:Encrypt`` and ``kms:Decrypt`` on the key.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from relayer.errors import ConfigurationError, KeyProviderUnavailable

# The service compares it with that of the encryption, so nothing else that was encrypted with the key can be put in its place.
_CONTEXT = {"memrelay": "store-key"}
_ARN = re.compile(r"arn:[a-z0-9-]+:kms:([a-z0-9-]+):.+")
_ANOTHER_KEY = frozenset({"InvalidCiphertextException", "IncorrectKeyException"})
_LATER = frozenset({"DependencyTimeoutException", "KMSInternalException", "ThrottlingException"})
_CONNECT_SECONDS, _READ_SECONDS = 5, 10


class AwsKey:
    """Wraps the store key with a key of AWS KMS, as the `KeyProvider` port.

    Args:
        key: ARN, id or alias of the key; the region of an ARN takes precedence over the configured one.
    """

    name = "awskms"

    def __init__(self, key: str) -> None:
        self._key = key

    async def wrap(self, store_key: bytes) -> bytes:
        """Encrypt the store key.

        Raises:
            ConfigurationError: the service refuses, for example because a permission is missing.
            KeyProviderUnavailable: it does not respond.
        """
        try:
            answer = await self._ask("encrypt", Plaintext=store_key)
        except ClientError as error:
            raise self._failure("encrypt", error) from None
        return bytes(answer["CiphertextBlob"])

    async def unwrap(self, wrapped: bytes) -> bytes | None:
        """Decrypt the store key; None if it was encrypted with another key. Raises as `wrap`."""
        try:
            answer = await self._ask("decrypt", CiphertextBlob=wrapped)
        except ClientError as error:
            if error.response["Error"]["Code"] in _ANOTHER_KEY:
                return None
            raise self._failure("decrypt", error) from None
        return bytes(answer["Plaintext"])

    async def _ask(self, operation: str, **parameters: bytes) -> dict[str, Any]:
        try:
            return await asyncio.to_thread(self._ask_now, operation, parameters)
        except BotoCoreError as error:
            # The messages name settings and addresses, but no credentials.
            raise KeyProviderUnavailable(f"AWS KMS could not be asked for {self._key}: {error}") from error

    def _ask_now(self, operation: str, parameters: dict[str, bytes]) -> dict[str, Any]:
        arn = _ARN.fullmatch(self._key)
        config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"total_max_attempts": 3, "mode": "standard"},
        )
        # A client is used at the start only, so it is not kept.
        client = boto3.session.Session(region_name=arn[1] if arn else None).client("kms", config=config)
        try:
            answer: dict[str, Any] = getattr(client, operation)(
                KeyId=self._key, EncryptionContext=_CONTEXT, **parameters
            )
            return answer
        finally:
            client.close()

    def _failure(self, operation: str, error: ClientError) -> ConfigurationError | KeyProviderUnavailable:
        code = error.response["Error"]["Code"]
        told = f"AWS KMS does not {operation} with {self._key}: {code}"
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        if code in _LATER or status >= 500:
            return KeyProviderUnavailable(f"{told}; try again later")
        return ConfigurationError(
            f"MEMRELAY_RELAYER_KEY: {told}; check the key's name, its state, and that the role may kms:Encrypt and kms:Decrypt"
        )
