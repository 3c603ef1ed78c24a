"""Run the calls of an MCP client with the plugin, for the caller's memories, and render results for the tool name used.

Nothing here depends on the protocol. Invalid keys or settings do not end the server: every call returns the problem and its
fix, and after a person has logged in, the next call of ``memwal_login`` uses the new keys.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gateway_plugin.errors import GatewayError
from gateway_plugin.hosting import DEFAULT_AGENT, DEFAULT_NAME, HostTurn, ToolAnswer, TurnAudience, framed
from gateway_plugin.hosts.mcp.definitions import MAX_BULK, MEMWAL_NAMES, NOTICE, RESOURCES, TEMPLATE
from gateway_plugin.plugin import AsyncMemoryPlugin
from gateway_plugin.settings.model import PluginSettings
from relayer.wire.quoting import escape

LIMIT_SECONDS: Final = 30.0
"""Maximum seconds of a call; the deadlines of its requests are shorter."""
ANALYZE_SECONDS: Final = 60.0
_SLOW: Final = frozenset({"memory_analyze", "memwal_analyze", "memwal_remember_bulk"})
_SESSION: Final = "api:mcp"
_HOST: Final = "mcp"
_QUOTING: Final = frozenset(
    {"memory_search", "memory_get", "memory_transcript", "memory_list", "memory_history", "memory_profile"}
)
_LOGIN: Final = "memrelay-gateway mcp login"
_FIXES: Final = {
    "unavailable": "Is the relayer running? A person can look: memrelay-gateway doctor",
    "timeout": "The relayer is slow or stuck; try again later. A person can look: memrelay-gateway doctor",
    "untrusted": "Nothing it answered counts. A person can look: memrelay-gateway doctor",
    "refused:unauthorized": f"The saved keys were kept. A person can renew them: {_LOGIN}, or look: memrelay-gateway doctor",
    "skipped:identity": f"A person can get keys for this program: {_LOGIN}",
    "switched_off": "A person can switch it on: memrelay-gateway on, without MEMRELAY_DISABLE",
}
# MemWal's tools, each with our equivalent tool and the arguments that both have.
_IN_OUR_WORDS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "memwal_remember": ("memory_store", ("text",)),
    "memwal_recall": ("memory_search", ("query", "limit")),
    "memwal_analyze": ("memory_analyze", ("text",)),
    "memwal_restore": ("memory_status", ()),
    "memwal_remember_status": ("memory_job", ("job_id",)),
    "memwal_health": ("memory_status", ()),
}
_RECALLED: Final = 10
Progress = Callable[[float, float | None, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ToolCaller:
    """The caller of a tool.

    Attributes:
        agent: the agent whose memories are used; None for the host's default agent, or the one whose keys are held.
        namespace: the namespace below the agent's own for calls that name none; "" for the agent's own.
    """

    agent: str | None = None
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class McpAnswer:
    """The result of a call.

    Attributes:
        structured: the result for programs, in the schema of the tool's definition; None for failures.
    """

    text: str
    structured: dict[str, Any] | None = field(default=None, repr=False)
    failed: bool = False


Opener = Callable[[], AsyncMemoryPlugin]


class ClientMemory:
    """The memory of one server.

    Args:
        opener: creates the plugin, and creates it again after a login; raises `GatewayError`.
        keys_now: returns a value that changes when other keys are saved.
    """

    def __init__(self, opener: Opener, keys_now: Callable[[], object] = lambda: None) -> None:
        self._opener = opener
        self._keys_now = keys_now
        self._keys_then: object = None
        self._settings = PluginSettings()
        self._plugin: AsyncMemoryPlugin | None = None
        self._problem: GatewayError | None = None
        self._logged_out: set[ToolCaller] = set()
        self._opening = asyncio.Lock()

    async def open(self) -> str:
        """Create and start the plugin.

        Returns:
            The message of the `GatewayError` that prevented it; "" if there was none.
        """
        self._keys_then = self._keys_now()
        try:
            self._plugin, self._problem = self._opener(), None
        except GatewayError as error:
            self._plugin, self._problem = None, error
            return str(error)
        self._settings = self._plugin.settings
        await self._plugin.start()
        return ""

    async def aclose(self) -> None:
        """Deliver what is pending, and close the plugin."""
        plugin, self._plugin = self._plugin, None
        if plugin is not None:
            await plugin.aclose()

    async def call(
        self, name: str, arguments: Mapping[str, object], caller: ToolCaller, progress: Progress
    ) -> McpAnswer:
        """Call a tool of `gateway_plugin.hosts.mcp.definitions.NAMES`; every failure is returned as a result."""

        async def done() -> McpAnswer:
            if name in MEMWAL_NAMES:
                return await self._memwal(name, arguments, caller, progress)
            return self._shown(name, await self._tool(name, arguments, caller))

        return await _bounded(done, ANALYZE_SECONDS if name in _SLOW else LIMIT_SECONDS)

    async def read(self, uri: str, caller: ToolCaller) -> McpAnswer | None:
        """Read a resource; None if there is none with this URI."""
        one = next((one for one in RESOURCES if one.uri == uri), None)
        prefix = TEMPLATE.partition("{")[0]
        ref = uri.removeprefix(prefix)
        if one is None and not (uri.startswith(prefix) and re.fullmatch(r"[A-Za-z0-9]{1,64}", ref)):
            return None
        tool, arguments = (one.tool, dict(one.arguments)) if one else ("memory_get", {"ref": ref})

        async def done() -> McpAnswer:
            answer = await self._tool(tool, arguments, caller)
            # The tool returns an empty text for an unknown reference.
            return self._shown(tool, answer) if answer.text else McpAnswer("")

        answer = await _bounded(done, LIMIT_SECONDS)
        return answer if answer.text else None

    async def recall(self, query: str, caller: ToolCaller) -> str:
        """Return the memory block that a turn with this prompt would get, or the reason why there is none."""
        if self._plugin is None or caller in self._logged_out:
            return self._unavailable(caller).text
        if caller.namespace:
            # Turns recall from the agent's own namespace only, so search instead.
            return (await self.call("memory_search", {"query": query}, caller, _untold)).text
        found = await self._plugin.before_turn(query, session_key=_SESSION, host=_host_turn(caller))
        return found.text or f"(No memories: {found.detail or found.status})"

    async def _tool(self, name: str, arguments: Mapping[str, object], caller: ToolCaller) -> ToolAnswer:
        if self._plugin is None or caller in self._logged_out:
            return self._unavailable(caller)
        given = dict(arguments)
        if caller.namespace and not given.get("namespace"):
            given["namespace"] = f"./{caller.namespace}"
        answer = await self._plugin.tool(name, given, session_key=_SESSION, host=_host_turn(caller))
        fix = _FIXES.get(answer.reason, "")
        return replace(answer, text=f"{answer.text}\n{fix}") if fix else answer

    def _unavailable(self, caller: ToolCaller) -> ToolAnswer:
        if caller in self._logged_out:
            return ToolAnswer("Memory error: logged out here; memwal_login takes it back.", failed=True)
        why = escape(str(self._problem)) if self._problem else "memory is not open"
        return ToolAnswer(
            f"Memory error: {why}\n{_FIXES['skipped:identity']}, then memwal_login", failed=True
        )

    def _shown(self, name: str, answer: ToolAnswer) -> McpAnswer:
        if answer.failed:
            return McpAnswer(answer.text, failed=True)
        details = dict(answer.details)
        if name == "memory_transcript":
            details["text"] = answer.text
        if name not in _QUOTING:
            return McpAnswer(answer.text, details)
        quoted = bool(details.get("memories") or details.get("text") or details.get("document"))
        text = framed(answer.text, settings=self._settings.recall) if quoted else answer.text
        return McpAnswer(text or "Nothing is known by that name.", {**details, "notice": NOTICE})

    async def _memwal(
        self, name: str, arguments: Mapping[str, object], caller: ToolCaller, progress: Progress
    ) -> McpAnswer:
        if name == "memwal_login":
            return await self._login(caller)
        if name == "memwal_logout":
            return self._logout(caller)
        if name == "memwal_remember_bulk":
            return await self._bulk(arguments.get("items"), caller, progress)
        tool, given = _IN_OUR_WORDS[name]
        namespace = _flat(arguments, caller)
        asked = {one: arguments[one] for one in given if one in arguments}
        if name == "memwal_recall":
            asked.setdefault("limit", _RECALLED)
        answer = await self._tool(tool, {**asked, "namespace": f"./{namespace}"}, caller)
        told = self._shown(tool, answer)
        if told.failed or told.structured is None:
            return told
        text, structured = _in_their_words(name, told.structured, namespace or DEFAULT_NAME)
        if name == "memwal_recall" and structured["memories"]:
            text = framed(text, settings=self._settings.recall)
        return McpAnswer(text or told.text, structured)

    async def _bulk(self, items: object, caller: ToolCaller, progress: Progress) -> McpAnswer:
        if not isinstance(items, list) or not 1 <= len(items) <= MAX_BULK:
            return McpAnswer(
                f"Memory error: items: give 1 to {MAX_BULK} of them, each with a text", failed=True
            )
        ids: list[str] = []
        for place, item in enumerate(items):
            given = item if isinstance(item, Mapping) else {"text": item}
            await progress(place, len(items), f"{place} of {len(items)} saved")
            namespace = f"./{_flat(given, caller)}"
            asked = {"text": given.get("text", ""), "namespace": namespace}
            answer = await self._tool("memory_store", asked, caller)
            if answer.failed:
                # The remaining ones would most likely fail as well, each after its own deadline.
                before = f"; the {place} before it are saved" if place else ""
                return McpAnswer(f"{answer.text}\n(items[{place}]{before})", failed=True)
            # A courtesy or a question is not stored, so it has no id.
            ids.append(str(answer.details.get("id", "")))
        await progress(len(items), len(items), f"{len(items)} of {len(items)} saved")
        return McpAnswer(
            f"Saved {len(ids)} to MemWal. blob_ids={','.join(ids)}", {"total": len(ids), "blob_ids": ids}
        )

    async def _login(self, caller: ToolCaller) -> McpAnswer:
        self._logged_out.discard(caller)
        answer = await self._tool("memory_status", {}, caller)
        # A working plugin is not replaced, because other HTTP clients use it, too.
        if answer.failed or self._keys_now() != self._keys_then:
            async with self._opening:
                await self.aclose()
                await self.open()
            answer = await self._tool("memory_status", {}, caller)
        if answer.failed:
            return McpAnswer(answer.text, failed=True)
        return McpAnswer(f"Logged in.\n{answer.text}", {"status": "logged_in"})

    def _logout(self, caller: ToolCaller) -> McpAnswer:
        self._logged_out.add(caller)
        text = (
            "Logged out in this program; memwal_login takes it back. The saved keys stay good: "
            "a person takes them back with memrelay-gateway mcp logout"
        )
        return McpAnswer(text, {"status": "logged_out"})


async def _bounded(work: Callable[[], Awaitable[McpAnswer]], seconds: float) -> McpAnswer:
    """Run a call with a timeout; a timeout or an unexpected error is returned as a result."""
    try:
        async with asyncio.timeout(seconds):
            return await work()
    except TimeoutError:
        why = f"it took longer than {seconds:.0f} seconds. {_FIXES['timeout']}"
    except Exception as error:  # noqa: BLE001 - an error in the plugin must not end the model's turn
        why = f"it failed inside the plugin ({type(error).__name__})"
    return McpAnswer(f"Memory error: {why}", failed=True)


async def _untold(_done: float, _total: float | None, _message: str) -> None:
    """Ignore progress."""


def _host_turn(caller: ToolCaller) -> HostTurn:
    # The program belongs to one person, and only that person reads the results.
    return HostTurn(host=_HOST, agent=caller.agent, audience=TurnAudience.DIRECT)


def _flat(arguments: Mapping[str, object], caller: ToolCaller) -> str:
    """Return the namespace below the agent's own for MemWal's flat name; "" for ``default``, which is the agent's own."""
    name = arguments.get("namespace")
    if not isinstance(name, str) or not name.strip():
        return caller.namespace
    return "" if name.strip().lower() in {DEFAULT_NAME, DEFAULT_AGENT} else name.strip()


def _in_their_words(name: str, details: Mapping[str, Any], namespace: str) -> tuple[str, dict[str, Any]]:
    """Return a result in the format of MemWal's tool. The text is "" if ours can be used as it is."""
    match name:
        case "memwal_remember":
            told = {
                "blob_id": details.get("id", ""),
                "namespace": escape(namespace),
                "status": details.get("status", ""),
            }
            saved = f"Saved to MemWal. blob_id={told['blob_id']} namespace={told['namespace']}"
            return saved if told["blob_id"] else "", told
        case "memwal_recall":
            lines = [
                f"{number}. [score={one['relevance']:.3f}] {one['text']}"
                for number, one in enumerate(details["memories"], 1)
            ]
            return "\n".join(lines), dict(details)
        case "memwal_analyze":
            stored, refused = len(details["ids"]), details["refused"]
            job = f" job_id={details['job_id']}" if "job_id" in details else ""
            found = f"Extracted {stored + refused} fact(s)"
            return f"{found} \u2014 succeeded={stored} failed={refused}{job}", dict(details)
        case "memwal_restore":
            total = details["memories"]
            counts = {"restored": 0, "skipped": total, "total": total}
            said = " ".join(f"{word}={count}" for word, count in counts.items())
            told = {**counts, "namespace": escape(namespace)}
            return f"Restored namespace={told['namespace']}: {said}. All of it is searchable.", told
        case _:
            return "", dict(details)
