"""Query strings, parsed as strictly as bodies: known names, each once, bounded values."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from relayer.http.body import validate
from relayer.http.problems import HttpProblem
from relayer.wire.schemas import MAX_LIMIT, MAX_WAIT_MS, AudienceName, KindName, StandingName, TrustName

__all__ = [
    "CURSOR",
    "ChangesQuery",
    "ContextQuery",
    "ForgetQuery",
    "JobQuery",
    "ListQuery",
    "NamespacesQuery",
    "ProfileQuery",
    "parse_query",
]

_MOST_FIELDS = 16
CURSOR = r"^[0-9]{1,18}(\.[0-9]{1,9})?$"


def _split(value: object) -> object:
    return tuple(value.split(",")) if isinstance(value, str) else value


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


_Cursor = Annotated[str, Field(min_length=1, max_length=1024)]
_Comma = WithJsonSchema({"type": "string", "description": "names joined by commas"})


class ListQuery(_Query):
    """``GET /v1/memories``."""

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 20
    cursor: _Cursor | None = None
    kinds: Annotated[tuple[KindName, ...], Field(max_length=9), BeforeValidator(_split), _Comma] = ()
    states: Annotated[tuple[StandingName, ...], Field(max_length=3), BeforeValidator(_split), _Comma] = ()


class NamespacesQuery(_Query):
    """``GET /v1/namespaces``."""

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = MAX_LIMIT
    cursor: _Cursor | None = None


class JobQuery(_Query):
    """``GET /v1/jobs/{id}``."""

    wait_ms: Annotated[int, Field(ge=0, le=MAX_WAIT_MS)] = 0


class ContextQuery(_Query):
    """``GET /v1/context``; ``offset_minutes`` is how far the reader's clock is ahead of UTC."""

    days: Annotated[int, Field(ge=1, le=31)] = 2
    items: Annotated[int, Field(ge=1, le=200)] = 15
    offset_minutes: Annotated[int, Field(ge=-24 * 60 + 1, le=24 * 60 - 1)] = 0
    audiences: Annotated[tuple[AudienceName, ...], Field(max_length=3), BeforeValidator(_split), _Comma] = ()
    trusts: Annotated[tuple[TrustName, ...], Field(max_length=4), BeforeValidator(_split), _Comma] = ()


class ProfileQuery(_Query):
    """``GET /v1/profile``; only what the user said or had imported, unless other voices are asked for."""

    max_tokens: Annotated[int, Field(ge=1, le=20_000)] = 1000
    audiences: Annotated[tuple[AudienceName, ...], Field(max_length=3), BeforeValidator(_split), _Comma] = ()
    trusts: Annotated[tuple[TrustName, ...], Field(max_length=4), BeforeValidator(_split), _Comma] = (
        "user",
        "imported",
    )


class ChangesQuery(_Query):
    """``GET /v1/changes``."""

    after: Annotated[str, Field(pattern=CURSOR)] = "0"
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = MAX_LIMIT
    wait_ms: Annotated[int, Field(ge=0, le=MAX_WAIT_MS)] = 0


class ForgetQuery(_Query):
    """``DELETE /v1/memories/{id}``."""

    mode: Literal["forget", "erase"] = "forget"


def parse_query(raw: str, schema: type[BaseModel] | None) -> BaseModel | None:
    """Parse a raw query.

    Raises:
        HttpProblem: ``malformed`` (not in form, or a name twice) or ``invalid``.
    """
    if schema is None:
        if raw:
            raise HttpProblem("malformed", "This route takes no query.")
        return None
    values: dict[str, Any] = {}
    if raw:
        try:
            pairs = parse_qsl(
                raw,
                keep_blank_values=True,
                strict_parsing=True,
                errors="strict",
                max_num_fields=_MOST_FIELDS,
            )
        except ValueError as error:
            raise HttpProblem("malformed", "The query is not in form.") from error
        values = dict(pairs)
        if len(values) != len(pairs):
            raise HttpProblem("malformed", "The query has the same name twice.")
    return validate(values, schema, within=("query",))
