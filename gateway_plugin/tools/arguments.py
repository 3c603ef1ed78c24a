"""The arguments of the memory tools, as models pass them.

There is one schema per tool. It also accepts the argument names of all memory systems that memrelay replaces (X6).
`parse_arguments` validates a call, and `tool_schemas` returns the schemas as hosts register them; the docstrings of the
argument classes are the descriptions that models read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from relayer.wire.labels import Filter, Metadata, Tags

MAX_TEXT: Final = 16_000


class ToolError(Exception):
    """Raised when a tool call fails because of its arguments; the message is for the model and says how to correct them."""


class Arguments(BaseModel):
    """Base of the arguments of a tool."""

    # Hosts add arguments of their own, so unknown ones are ignored here; see `check_names`.
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True, populate_by_name=True)


_ArgumentsT = TypeVar("_ArgumentsT", bound=Arguments)
_Ref = Annotated[str, Field(min_length=1, max_length=512)]
_Text = Annotated[str, Field(min_length=3, max_length=MAX_TEXT)]
_REF_NAMES: Final = AliasChoices("ref", "id", "memory_id", "memoryId", "chunk_hash", "path", "blob_id")
_NAMESPACE: Final = Field(None, max_length=512, description="A namespace of this agent.")
_OCCURRED_AT: Final = Field(
    None,
    validation_alias=AliasChoices("occurredAt", "occurred_at"),
    description="ISO 8601, or ms since 1970.",
)
_WHERE: Final = Field(
    None,
    description='Filter: {"tags": "health", "ticket": {"gte": 4000}}; also eq, in, not, gt, lt, lte, and, or.',
)


class SearchArguments(Arguments):
    """Search long-term memory for what was said in earlier conversations."""

    query: Annotated[str, Field(min_length=1, max_length=4000, description="Search text.")]
    limit: int = Field(
        5, ge=1, le=100, validation_alias=AliasChoices("limit", "maxResults", "max_results", "top_k")
    )
    min_score: float | None = Field(None, ge=0, le=1, validation_alias=AliasChoices("minScore", "min_score"))
    namespace: str | None = _NAMESPACE
    corpus: str | None = Field(
        None, max_length=64, description="memory, sessions (what was said), wiki, or all (default)."
    )
    include: tuple[Literal["superseded"], ...] = Field(
        (), max_length=1, description="superseded: also search memories that were replaced by corrections."
    )
    as_of: str | int | None = Field(
        None,
        validation_alias=AliasChoices("asOf", "as_of"),
        description="Search what was valid at this time: ISO 8601, or ms since 1970.",
    )
    where: Filter | None = _WHERE


class GetArguments(Arguments):
    """Read one memory whole, with what was said around it; or lines of a memory file, such as MEMORY.md."""

    ref: _Ref = Field(validation_alias=_REF_NAMES, description="Id of a memory, or a path such as MEMORY.md.")
    start: int = Field(1, ge=1, validation_alias=AliasChoices("from", "start"), description="First line.")
    lines: int | None = Field(None, ge=1, le=10_000, description="How many lines.")
    namespace: str | None = _NAMESPACE


class StoreArguments(Arguments):
    """Remember something lasting: a fact, a preference or a decision, in a sentence of its own."""

    text: _Text = Field(validation_alias=AliasChoices("text", "content", "fact"))
    tags: Tags = Field((), description="Up to 32 short labels, for filters.")
    metadata: Metadata = Field(default_factory=dict, description="A JSON object, for filters.")
    namespace: str | None = _NAMESPACE
    occurred_at: str | int | None = _OCCURRED_AT


class UpdateArguments(Arguments):
    """Correct a memory: the new text takes its place, the old one stays in the history."""

    ref: _Ref = Field(validation_alias=_REF_NAMES)
    text: _Text = Field(validation_alias=AliasChoices("text", "content"))
    namespace: str | None = _NAMESPACE


class ForgetArguments(Arguments):
    """Hide a memory from recall. The user can restore it."""

    ref: _Ref = Field(validation_alias=_REF_NAMES)
    namespace: str | None = _NAMESPACE


class TranscriptArguments(Arguments):
    """Read the exact dialogue of a session from this machine's log, or what the relayer kept of it where there is none."""

    path: Annotated[str, Field(min_length=1, max_length=1024)] = Field(
        validation_alias=AliasChoices("transcript_path", "path", "ref"),
        description="The session, as memory_get names it, or a file of the host's logs.",
    )
    anchor: str | None = Field(
        None,
        max_length=512,
        description="Position to read around: a time that memory_get shows, or the id of a message.",
    )
    turns: int = Field(20, ge=1, le=200)


class ListArguments(Arguments):
    """List memories, newest first."""

    limit: int = Field(20, ge=1, le=100)
    cursor: str | None = Field(None, max_length=4096, description="next_cursor of the previous page.")
    where: Filter | None = _WHERE
    namespace: str | None = _NAMESPACE


class HistoryArguments(Arguments):
    """Show every version of a memory, oldest first: what was true before, and what took its place."""

    ref: _Ref = Field(validation_alias=_REF_NAMES, description="A memory's id.")
    namespace: str | None = _NAMESPACE


class ProfileArguments(Arguments):
    """Read what is known of the user and their work, as one short document."""

    max_tokens: int = Field(1000, ge=1, le=20_000, validation_alias=AliasChoices("maxTokens", "max_tokens"))
    namespace: str | None = _NAMESPACE


class AnalyzeArguments(Arguments):
    """Find in a text what is worth remembering, and keep each of it as a memory of its own."""

    text: Annotated[str, Field(min_length=3, max_length=64_000)] = Field(
        validation_alias=AliasChoices("text", "content")
    )
    namespace: str | None = _NAMESPACE
    occurred_at: str | int | None = _OCCURRED_AT


class JobArguments(Arguments):
    """Say how far a job is that memory_analyze began."""

    job_id: _Ref = Field(validation_alias=AliasChoices("jobId", "job_id", "id"))
    namespace: str | None = _NAMESPACE


class StatusArguments(Arguments):
    """Say whether memory works: the relayer, whose memories these are, and how many."""

    namespace: str | None = _NAMESPACE


_TOOLS: Final[dict[str, type[Arguments]]] = {
    "memory_search": SearchArguments,
    "memory_get": GetArguments,
    "memory_store": StoreArguments,
    "memory_update": UpdateArguments,
    "memory_forget": ForgetArguments,
    "memory_transcript": TranscriptArguments,
}
TOOL_NAMES: Final = tuple(_TOOLS)
"""The names of the tools that every host offers to its model."""

# Hosts that recall and capture by themselves do not need these, see `gateway_plugin.tools.toolbox`.
_MORE: Final[dict[str, type[Arguments]]] = {
    "memory_list": ListArguments,
    "memory_history": HistoryArguments,
    "memory_profile": ProfileArguments,
    "memory_analyze": AnalyzeArguments,
    "memory_job": JobArguments,
    "memory_status": StatusArguments,
}
ALL_TOOL_NAMES: Final = (*_TOOLS, *_MORE)
"""The names of all tools that `gateway_plugin.plugin.MemoryPlugin.tool` can run."""


def parse_arguments(tool: str, arguments: object) -> Arguments:
    """Validate the arguments of a tool call.

    Raises:
        ToolError: unknown tool, or an argument is missing or wrong. The message does not contain values.
    """
    shape = _TOOLS.get(tool) or _MORE.get(tool)
    if shape is None:
        raise ToolError(f"there is no tool {tool[:64]!r}; there are {', '.join(ALL_TOOL_NAMES)}")
    return validated(shape, arguments)


def check_names(tool: str, arguments: Iterable[str]) -> None:
    """Check that a tool knows the names of the arguments of a call; for callers that add none of their own.

    Raises:
        ToolError: it does not know one of them. The message names the ones that it knows.
    """
    shape = _TOOLS.get(tool) or _MORE.get(tool)
    if shape is None:
        return
    known = set(shape.model_fields)
    for one in shape.model_fields.values():
        if isinstance(one.validation_alias, AliasChoices):
            known.update(str(name) for name in one.validation_alias.choices)
    for name in arguments:
        if name not in known:
            names = ", ".join(shape.model_json_schema(by_alias=True)["properties"])
            raise ToolError(f"{name[:64]}: there is no such argument; {tool} takes {names}")


def validated(shape: type[_ArgumentsT], arguments: object) -> _ArgumentsT:
    """Return the arguments of a call. Raises `ToolError`; its message does not contain values."""
    try:
        return shape.model_validate(arguments)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the arguments"
        raise ToolError(f"{field}: {first['msg'].removeprefix('Value error, ')}") from None


def tool_schemas(names: Iterable[str] = TOOL_NAMES) -> list[dict[str, Any]]:
    """Return the name, description and JSON schema of each tool, as hosts register them; raises `KeyError` if unknown."""
    found = []
    for name in names:
        shape = (_TOOLS | _MORE)[name]
        schema = shape.model_json_schema(by_alias=True)
        properties = {field: _plain(value) for field, value in schema["properties"].items()}
        parameters = {"type": "object", "properties": properties, "required": schema.get("required", [])}
        found.append({"name": name, "description": shape.__doc__ or "", "parameters": parameters})
    return found


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """Remove what some providers of models reject from a schema: titles, defaults, and null as an alternative type."""
    kept = {key: entry for key, entry in value.items() if key not in {"title", "default"}}
    options = [option for option in kept.pop("anyOf", []) if option.get("type") != "null"]
    return {**(options[0] if options else {}), **kept}
