"""Parse JSON that others wrote, where ``json.loads`` raises more than ``ValueError``."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Parse one JSON document.

    Raises:
        ValueError: it is none, `json.JSONDecodeError` where the line is known; or it is nested too deeply, or a number in
            it has too many digits.

    Example:
        >>> parse_json('{"items": [1, 2]}')
        {'items': [1, 2]}
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:
        raise ValueError("a number in its JSON has too many digits") from None
