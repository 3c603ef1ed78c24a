"""What single settings may be: types that check a value and say what is wrong with it."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from relayer.errors import ConfigurationError
from relayer.settings.store_address import check_endpoint, parse_store
from relayer.wire.keys import is_account_id

__all__ = ["PREFIX", "Accounts", "EndpointUrl", "ModelName", "ModelUrl", "Networks", "StoreUrl"]

PREFIX = "MEMRELAY_"
"""What the environment's name of a setting begins with."""


def _accounts(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.strip() == "open":
        return "open"
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _check_accounts(value: object) -> object:
    parsed = _accounts(value)
    if parsed is None or parsed == "open":
        return parsed
    if not isinstance(parsed, list | tuple) or not parsed:
        raise ValueError("must be 'open' or account ids separated by commas")
    if not all(isinstance(item, str) and is_account_id(item) for item in parsed):
        raise ValueError("must be 'open' or account ids: 0x and 64 lower-case hex digits each")
    return tuple(parsed)


def _check_store(value: str) -> str:
    try:
        parse_store(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from error
    return value


def _check_endpoint(value: str) -> str:
    try:
        check_endpoint(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from error
    return value


def _check_model_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(
            "must be a URL such as https://api.example.org/v1, without /embeddings or /chat/completions"
        )
    if parts.username is not None:
        raise ValueError("must hold no credentials: give the key in the environment")
    return value.rstrip("/")


def _networks(value: object) -> object:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError("must be addresses or networks such as 10.0.0.0/8, separated by commas")  # noqa: TRY004
    try:
        return tuple(ipaddress.ip_network(str(part).strip()) for part in parts)
    except ValueError as error:
        raise ValueError("must be addresses or networks such as 10.0.0.0/8, separated by commas") from error


Accounts = Annotated[Literal["open"] | tuple[str, ...] | None, BeforeValidator(_check_accounts)]
StoreUrl = Annotated[str, AfterValidator(_check_store)]
Networks = Annotated[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...], BeforeValidator(_networks)]
EndpointUrl = Annotated[str, AfterValidator(_check_endpoint)]
ModelUrl = Annotated[str, Field(max_length=2048), AfterValidator(_check_model_url)]
ModelName = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\s]+$")]
