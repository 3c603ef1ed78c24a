"""JSON with one meaning only: no duplicate keys, no NaN, no text that is not Unicode; and no object beyond measure."""

from __future__ import annotations

import json
from typing import Any, Never

from relayer.http.problems import HttpProblem

__all__ = ["parse"]

# The largest object of the API has about twenty; each unknown one beyond is an error to collect.
_MOST_KEYS = 64
# The largest request has a hundred items with two or three in each.
_MOST_OBJECTS = 4_096


def parse(body: bytes) -> Any:
    """Parse one document.

    Raises:
        HttpProblem: ``invalid_json``, naming the rule and never a value.
    """
    try:
        text = body.decode("utf-8")
        value = _decoder().decode(text)
        # A lone surrogate can only come from an escape; most bodies have none, and need no second look.
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise _invalid("The body is not UTF-8.") from error
    except UnicodeEncodeError as error:
        raise _invalid("A string contains a lone surrogate.") from error
    except RecursionError as error:
        raise _invalid("The body is nested too deeply.") from error
    except _Rule as error:
        raise _invalid(str(error)) from None
    except ValueError as error:
        raise _invalid("The body is not one JSON document.") from error
    return value


class _Rule(ValueError):
    pass


def _invalid(detail: str) -> HttpProblem:
    return HttpProblem("invalid_json", detail)


def _decoder() -> json.JSONDecoder:
    left = _MOST_OBJECTS

    def counted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal left
        left -= 1
        if left < 0:
            raise _Rule(f"The body has more than {_MOST_OBJECTS} objects.")
        return _object(pairs)

    return json.JSONDecoder(object_pairs_hook=counted, parse_constant=_constant)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > _MOST_KEYS:
        raise _Rule(f"An object has more than {_MOST_KEYS} keys.")
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _Rule("An object has the same key twice.")
    return value


def _constant(_: str) -> Never:
    raise _Rule("NaN and Infinity are not JSON.")
