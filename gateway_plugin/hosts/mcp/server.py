"""The protocol: passes a client's requests to `gateway_plugin.hosts.mcp.memory`, over standard streams or HTTP.

Needs the extra ``memrelay[mcp]``. Problems with memory are returned as results of tools; only a request for something that
does not exist is refused. If a client cancels a call, its request to the relayer is cancelled as well.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
from mcp import MCPError, types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.types import INVALID_PARAMS

from gateway_plugin import __version__
from gateway_plugin.hosts.mcp.memory import (
    INSTRUCTIONS,
    NAMES,
    PROMPTS,
    RESOURCES,
    TEMPLATE,
    ClientMemory,
    McpAnswer,
    Offered,
    ToolCaller,
    tool_definitions,
)

NAME: Final = "memrelay"
_BEAT_SECONDS: Final = 5.0
_MAX_NAME: Final = 64
# Tools that report their progress themselves.
_OWN_PROGRESS: Final = frozenset({"memwal_remember_bulk"})

Context = ServerRequestContext[Any, Any]
CallerOf = Callable[[Context], ToolCaller]


class MemoryServer:
    """Handles the requests of one server."""

    def __init__(
        self,
        memory: ClientMemory,
        caller_of: CallerOf,
        *,
        offered: Offered = Offered.ALL,
        debug: Callable[[str], None] | None = None,
    ) -> None:
        self._memory = memory
        self._caller_of = caller_of
        self._offered = offered
        self._debug = debug or (lambda _: None)
        quiet()

    def server(self) -> Server[dict[str, Any]]:
        """Return the SDK's server, which works with any transport."""
        return Server(
            NAME,
            version=__version__,
            title="memrelay",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )

    async def _list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        del ctx, params
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=one.name,
                    title=one.title,
                    description=one.description,
                    input_schema=one.parameters,
                    output_schema=one.output,
                    annotations=types.ToolAnnotations(
                        title=one.title,
                        read_only_hint=one.reads,
                        destructive_hint=one.destroys,
                        # No tool changes anything more when the same call is repeated.
                        idempotent_hint=True,
                        open_world_hint=False,
                    ),
                )
                for one in tool_definitions(self._offered)
            ]
        )

    async def _call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        async def progress(done: float, total: float | None, message: str) -> None:
            await ctx.session.report_progress(done, total, message)

        async def call() -> McpAnswer:
            return await self._memory.call(
                params.name, params.arguments or {}, self._caller_of(ctx), progress
            )

        if params.name not in NAMES:
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name[:_MAX_NAME]!r}")
        begun = time.perf_counter()
        answer = await (call() if params.name in _OWN_PROGRESS else _beating(ctx, call))
        outcome = "failed" if answer.failed else "ok"
        self._debug(f"tools/call {params.name}: {outcome} {round((time.perf_counter() - begun) * 1000)}ms")
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=answer.text)],
            structured_content=answer.structured,
            is_error=answer.failed,
        )

    async def _list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        del ctx, params
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=one.uri, name=one.name, description=one.description, mime_type="text/plain"
                )
                for one in RESOURCES
            ]
        )

    async def _list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        del ctx, params
        one = types.ResourceTemplate(
            uri_template=TEMPLATE,
            name="memory",
            description="One memory, with what was said around it.",
            mime_type="text/plain",
        )
        return types.ListResourceTemplatesResult(resource_templates=[one])

    async def _read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        answer = await self._memory.read(uri, self._caller_of(ctx))
        self._debug(f"resources/read: {'none' if answer is None else 'failed' if answer.failed else 'ok'}")
        if answer is None:
            raise MCPError(INVALID_PARAMS, "there is no such resource; memory_search shows the ids")
        if answer.failed:
            raise MCPError(INVALID_PARAMS, answer.text)
        contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text=answer.text)
        return types.ReadResourceResult(contents=[contents])

    async def _list_prompts(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        del ctx, params
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(
                    name=one.name,
                    title=one.title,
                    description=one.description,
                    arguments=[types.PromptArgument(name=one.argument, description=one.about, required=True)],
                )
                for one in PROMPTS
            ]
        )

    async def _get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        one = next((prompt for prompt in PROMPTS if prompt.name == params.name), None)
        if one is None:
            raise MCPError(INVALID_PARAMS, f"there is no prompt {params.name[:_MAX_NAME]!r}")
        said = (params.arguments or {}).get(one.argument, "").strip()
        if not said:
            raise MCPError(INVALID_PARAMS, f"{one.argument}: it is missing; {one.about}")
        if one.name == "recall":
            block = await self._memory.recall(said, self._caller_of(ctx))
            text = f"{said}\n\n{block}"
        else:
            text = f"Keep this in memory with memory_store, one fact in a sentence each:\n\n{said}"
        content = types.TextContent(type="text", text=text)
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])


async def serve_stdio(server: Server[dict[str, Any]]) -> None:
    """Serve the client at the other end of standard input and output until it closes them."""
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def client_agent(ctx: Context) -> str | None:
    """Return an agent's name for the client program, from the name that it reports; None if it reports none."""
    given = ctx.session.client_params
    name = re.sub(r"[^a-z0-9_-]+", "-", given.client_info.name.lower()).strip("-_") if given else ""
    return f"mcp-{name[: _MAX_NAME - 4]}" if name else None


def quiet() -> None:
    """Suppress the SDK's log, which may quote requests and therefore conversation text."""
    for name in ("mcp", "uvicorn"):
        log = logging.getLogger(name)
        log.handlers[:] = [logging.NullHandler()]
        log.propagate = False


async def _beating(ctx: Context, work: Callable[[], Awaitable[McpAnswer]]) -> McpAnswer:
    """Await work, and report every few seconds that it continues if the client asked for progress."""

    async def beat() -> None:
        count = 0
        while True:
            await anyio.sleep(_BEAT_SECONDS)
            count += 1
            await ctx.session.report_progress(count, None, "waiting for the relayer")

    found: list[McpAnswer] = []
    async with anyio.create_task_group() as group:
        group.start_soon(beat)
        found.append(await work())
        group.cancel_scope.cancel()
    return found[0]
