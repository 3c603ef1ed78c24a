"""The tools as the model sees them."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["PROMPT_SECTION", "TOOLS"]


def _tool(name: str, label: str, description: str, required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "description": description,
        "parameters": {
            "type": "object",
            "additionalProperties": True,
            "properties": properties,
            "required": required,
        },
    }


TOOLS: Final = (
    _tool(
        "memory_search",
        "Search memory",
        "Search long-term memory for what was said in earlier conversations.",
        ["query"],
        query={"type": "string", "description": "What to look for, in words."},
        limit={"type": "integer", "minimum": 1, "maximum": 50},
    ),
)
PROMPT_SECTION: Final = (
    "## Memory",
    "Long-term memory is kept for you across sessions. Call memory_search when the answer may lie in earlier conversations.",
    "",
)
