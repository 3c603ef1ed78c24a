"""The methods of the bridge that OpenClaw's plugin calls: turns, session events, tools, commands and status.

Errors here never reach a turn. Invalid settings end neither the bridge nor the gateway: the plugin gets the problem once,
and every later request is answered with the same problem. `Settling` delays the capture of a turn until its output has
settled, and `OpenClawModel` lets the host's own language model answer prompts.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from gateway_plugin import __version__
from gateway_plugin.bridge import (
    INVALID_PARAMS,
    UNAVAILABLE,
    AskHost,
    BridgeError,
    Call,
    HostRefused,
    KeptRequests,
)
from gateway_plugin.errors import GatewayError
from gateway_plugin.host_model import HostAnswer, HostModelUnavailable, HostQuestion
from gateway_plugin.hosting import CaptureReport, LocalRelayer, SystemClock, connect, is_wanted, notify
from gateway_plugin.hosts.openclaw.commands import (
    dreaming_command,
    list_replaced,
    memory_command,
    run_command,
)
from gateway_plugin.hosts.openclaw.config import core_config, kept_turns, state_folder, with_host_settings
from gateway_plugin.hosts.openclaw.examination import other_owners
from gateway_plugin.hosts.openclaw.files import AgentPlaces, FileWatch, project_lines
from gateway_plugin.hosts.openclaw.manifest import PLUGIN_ID
from gateway_plugin.hosts.openclaw.sessions import AGAIN
from gateway_plugin.hosts.openclaw.tools import call_tool, read_file, search_hits
from gateway_plugin.hosts.openclaw.turns import (
    Json,
    Runs,
    host_turn,
    messages_of,
    session_key_of,
    somebody_waits,
    with_speaker,
)
from gateway_plugin.plugin import AsyncMemoryPlugin
from gateway_plugin.settings.model import CaptureStrategy, PluginSettings, PromptPosition, load_settings

_MAX_PENDING: Final = 512


@dataclass(frozen=True, slots=True)
class HeardTurn:
    """A prompt and the part of its answer that the host reported so far."""

    session: str
    context: Json = field(repr=False)
    messages: tuple[Json, ...] = field(repr=False)


class Settling:
    """Debounces the capture of turns: at most one turn per session is pending.

    A turn is captured after some seconds without new output; of more than ``limit`` pending turns, the oldest one at once.
    """

    def __init__(
        self, seconds: float, capture: Callable[[HeardTurn], Awaitable[object]], limit: int = _MAX_PENDING
    ) -> None:
        self._seconds = seconds
        self._capture = capture
        self._limit = limit
        self._pending: OrderedDict[str, tuple[HeardTurn, asyncio.Task[None]]] = OrderedDict()

    async def heard(self, turn: HeardTurn) -> None:
        """Replace the session's pending turn by the same turn with more of its answer."""
        self.drop(turn.session)
        self._pending[turn.session] = (turn, asyncio.create_task(self._later(turn)))
        if len(self._pending) > self._limit:
            await self.flush(next(iter(self._pending)))

    async def flush(self, session: str) -> None:
        """Capture a session's pending turn now, because the session continues or ends."""
        if (pending := self._pending.pop(session, None)) is not None:
            turn, timer = pending
            timer.cancel()
            await self._capture(turn)

    def drop(self, session: str) -> None:
        """Discard a session's pending turn, because it is captured in another way."""
        if (pending := self._pending.pop(session, None)) is not None:
            pending[1].cancel()

    async def aclose(self) -> None:
        """Capture all pending turns."""
        for session in list(self._pending):
            await self.flush(session)

    async def _later(self, turn: HeardTurn) -> None:
        await asyncio.sleep(self._seconds)
        # After this line nothing cancels the task, so the turn is captured exactly once and completely.
        self._pending.pop(turn.session, None)
        await self._capture(turn)


_NOT_AUTHORIZED: Final = "LLM_COMPLETION_NOT_AUTHORIZED"
_TIMEOUT: Final = "LLM_TIMEOUT"
_REASONS: Final = {_NOT_AUTHORIZED: "not_allowed", _TIMEOUT: "timeout"}
_SENTENCES: Final = {
    _NOT_AUTHORIZED: "OpenClaw does not allow the plugin to use this model: see plugins.entries.memrelay.llm (allowModelOverride, "
    "allowedModels, allowedCompletionModels)",
    "LLM_COMPLETION_FAILED": "OpenClaw has no model for this, or the model's provider failed: see openclaw models status",
    _TIMEOUT: "OpenClaw's model did not answer in time",
    "LLM_EMPTY": "OpenClaw's model ended without an answer: see openclaw models status",
}


class OpenClawModel:
    """The `HostModel` of one gateway: OpenClaw's own model, which the JavaScript calls by ``api.runtime.llm.complete``."""

    def __init__(self, ask: AskHost) -> None:
        self._ask = ask

    async def complete(self, question: HostQuestion) -> HostAnswer:
        """Let the host's model answer a prompt.

        The agent's own model is used in active mode, and for all questions if
        ``plugins.entries.memrelay.llm.allowAgentIdOverride`` grants that; otherwise that of the gateway's default agent.

        Raises:
            HostModelUnavailable: the host refuses, or its model failed.
        """
        params = {
            "system": question.system,
            "prompt": question.prompt,
            "purpose": f"memrelay.{question.purpose}",
            "maxTokens": question.max_tokens,
            "effort": question.effort,
            "agentId": question.agent,
            "model": question.model,
        }
        try:
            told = await self._ask("model.complete", params, question.seconds)
        except HostRefused as error:
            reason = _REASONS.get(error.code, "unavailable")
            sentence = _SENTENCES.get(
                error.code, f"OpenClaw's model gave no answer ({error.code or 'unknown'})"
            )
            raise HostModelUnavailable(reason, sentence) from None
        text, model, cost = told.get("text"), told.get("model"), _number(told.get("costUsd"))
        return HostAnswer(
            text=text if isinstance(text, str) else "",
            tokens=int(_number(told.get("tokens")) or 0),
            model=model if isinstance(model, str) else "",
            cost_usd=cost,
        )


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e8:
        return float(value)
    return None


_FLUSH_SECONDS: Final = 2.0
_HEALTH_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 5.0
_OWN_SHARE: Final = 0.9
_MAX_BEHIND: Final = 100
_MOST_BEHIND: Final = 20
# The host's reasons for ending a session after which the conversation does not continue.
_ENDS: Final = frozenset({"new", "reset", "idle", "daily", "deleted"})
_SLOTS: Final = {
    PromptPosition.PREPEND: "prependContext",
    PromptPosition.APPEND: "appendContext",
    PromptPosition.SYSTEM_APPEND: "appendSystemContext",
}


class OpenClawHost:
    """The memory of one gateway."""

    def __init__(self, relayer: LocalRelayer) -> None:
        self._environ = os.environ
        self._ask: AskHost | None = None
        self._relayer = relayer
        self._plugin: AsyncMemoryPlugin | None = None
        self._problem = "memory was not started"
        self._runs = Runs()
        self._state = state_folder(self._environ)
        self._settles = False
        self._kept: KeptRequests | None = None
        self._looking: asyncio.Task[None] | None = None
        self._settling = Settling(0, self._settled)
        self._files: FileWatch | None = None
        # The newest messages by session that could not be put into the outbox; they are captured with the next turn. They
        # must be stored here, because a compaction shortens the history, and the host reports it without the old one.
        self._behind: dict[str, tuple[Json, ...]] = {}

    async def initialize(self, params: Json) -> Json:
        """Apply the configuration; see `Host.initialize`."""
        await self.aclose()
        try:
            settings = load_settings(core_config(params.get("config"), self._environ), self._environ)
            settings = await self._with_relayer(with_host_settings(settings, self._environ))
            # The model answers at the operator's cost, so it is used only with their consent.
            lends = params.get("model") is True and settings.host_model.enabled is True
            model = OpenClawModel(self._ask) if lends and self._ask else None
            self._plugin = AsyncMemoryPlugin(settings=settings, model=model, traces=self._state)
        except GatewayError as error:
            self._problem = str(error)
            return {"version": __version__, "problem": self._problem, "deadlineMs": 1000}
        self._problem = ""
        self._settles = settings.capture.strategy is CaptureStrategy.DEBOUNCE
        self._settling = Settling(settings.capture.debounce_ms / 1000, self._settled)
        secret = self._plugin.own_key("kept requests")
        self._kept = None if secret is None else KeptRequests(secret)
        await self._plugin.start()
        self._files = FileWatch(self._plugin, self._environ)
        self._files.start()
        if params.get("pluginId") == PLUGIN_ID and (sentence := other_owners(self._environ)):
            notify(f"memrelay: {sentence}")
        return {
            "keptKey": self._kept.public_key if self._kept else None,
            "version": __version__,
            "problem": "",
            "deadlineMs": settings.deadline_ms,
            "url": settings.url,
            "account": self._plugin.status().account,
            "disabled": settings.disabled,
        }

    def methods(self) -> Mapping[str, Callable[[Call], Awaitable[object]]]:
        """Return the methods by name; see `Host.methods`."""
        return {
            "turn.before": self._before,
            "turn.after": self._after,
            "turn.kept": self._handed_over_late,
            "turn.heard": self._heard,
            "session.event": self._session_event,
            "status": self._status,
            "health": self._health,
            "command": self._command,
            "tool.call": self._tool,
            "memory.search": self._search,
            "memory.read": self._read,
            "memory.project": self._project,
        }

    def attach(self, ask: AskHost) -> None:
        """Store the function that sends requests to the host; see `Host.attach`."""
        self._ask = ask

    async def aclose(self) -> None:
        """Deliver what is pending and release everything; see `Host.aclose`."""
        await self._settling.aclose()
        files, self._files = self._files, None
        if files is not None:
            await files.aclose()
        if self._looking is not None:
            self._looking.cancel()
        plugin, self._plugin = self._plugin, None
        if plugin is not None:
            await plugin.aclose()
        self._relayer.release()

    async def _with_relayer(self, settings: PluginSettings) -> PluginSettings:
        """Return settings that name a relayer. If they name none, use the relayer of this machine, and start it if needed."""
        if not is_wanted(settings):
            return settings
        try:
            url = await self._relayer.ensure()
        except GatewayError as error:
            # Turns continue without memory and captured ones wait, because the relayer may be started in another way.
            notify(f"memrelay: {error}")
            return settings
        return settings.model_copy(update={"url": url})

    async def _before(self, call: Call) -> Json:
        context = _context(call)
        total = call.params.get("historyLength")
        prompt = str(call.params.get("prompt", ""))
        self._runs.began(context, before=total if isinstance(total, int) else 0, prompt=prompt)
        plugin = self._plugin
        if plugin is None:
            return {"status": "failed", "detail": self._problem}
        if self._files is not None:
            self._files.heard(context)
        # A new turn of the session means that the output of the last one is complete.
        await self._settling.flush(session_key_of(context) or "")
        host = host_turn(
            context,
            first_turn=total == 0,
            interactive=somebody_waits(context),
            searches=call.params.get("hostSearch") is not False,
            prompted=await self._prompted(call, context),
        )
        injection = await plugin.before_turn(
            prompt,
            session_key=session_key_of(context),
            messages=messages_of(call.params),
            host=host,
            deadline=_within(call.deadline, plugin.settings.deadline_ms),
        )
        due = await plugin.due_intents(prompt, session_key=session_key_of(context), host=host)
        if plugin.outage and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(_look_again(plugin, context))
        text = "\n\n".join(filter(None, (injection.text, *due)))
        result: dict[str, str] = {_SLOTS[injection.position]: text} if text else {}
        if injection.instruction or injection.standing:
            system = _SLOTS[PromptPosition.SYSTEM_APPEND]
            # The constant part comes first, so that the provider's prompt cache can keep it.
            parts = (injection.standing, result.get(system), injection.instruction)
            result[system] = "\n\n".join(filter(None, parts))
        return {
            "result": result or None,
            "status": injection.status,
            "detail": injection.detail,
            "lines": injection.lines,
            "milliseconds": injection.milliseconds,
        }

    async def _after(self, call: Call) -> Json:
        context = _context(call)
        messages = messages_of(call.params)
        total = call.params.get("historyLength")
        began_at = call.params.get("runStart")
        added, inter_session = self._runs.ended(
            context,
            messages,
            total=total if isinstance(total, int) else len(messages),
            began_at=began_at if isinstance(began_at, int) else None,
            inter_session=call.params.get("interSession") is True,
        )
        added = with_speaker(added, context)
        key = session_key_of(context) or ""
        self._settling.drop(key)
        plugin = self._plugin
        if plugin is None:
            # The plugin keeps the request until the settings are valid.
            return {"status": "failed", "detail": self._problem, "unconfigured": True}
        # The host reports a provider's error as success, and names it only in the last answer.
        reasons = (
            message.get("stopReason") for message in reversed(added) if message.get("role") == "assistant"
        )
        report = await plugin.after_turn(
            (*self._behind.get(key, ()), *added),
            session_key=session_key_of(context),
            success=call.params.get("success") is not False,
            host=host_turn(
                context,
                inter_session=inter_session,
                stop_reason=str(next(reasons, None) or ""),
                turn_id=str(call.params.get("turnId") or ""),
            ),
        )
        self._note_behind(key, report, added)
        return _captured(report)

    async def _handed_over_late(self, call: Call) -> Json:
        """Handle a request that the plugin kept while no bridge could take it, in the same way as if it had arrived in time."""
        if self._kept is None:
            return {"status": "failed", "detail": self._problem, "unconfigured": True}
        kept = self._kept.call(call)
        if kept.method == "turn.after":
            return await self._after(kept)
        if kept.method == "session.event":
            return await self._session_event(kept)
        raise BridgeError(INVALID_PARAMS, f"{kept.method[:64]!r} is nothing that is kept")

    async def _heard(self, call: Call) -> Json:
        """Accept a partial answer, which is captured once it has settled; ignore it if the end of the run captured it already."""
        context = _context(call)
        asked = self._runs.asked(context)
        if self._plugin is None or not self._settles or asked is None or asked[1]:
            return {"status": "ignored"}
        texts = call.params.get("assistantTexts")
        answers = [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []
        said = [("user", asked[0]), *(("assistant", text) for text in answers)]
        messages = tuple({"role": role, "content": text} for role, text in said)
        await self._settling.heard(HeardTurn(session_key_of(context) or "", context, messages))
        return {"status": "settling"}

    async def _settled(self, turn: HeardTurn) -> None:
        if self._plugin is not None:
            await self._plugin.after_turn(
                with_speaker(turn.messages, turn.context),
                session_key=turn.session or None,
                host=host_turn(turn.context),
            )

    async def _session_event(self, call: Call) -> Json:
        """Handle the start or end of a session, or a compaction.

        A new session is warmed up. Before its history is rewritten or ends, messages whose capture failed are captured again,
        and the outbox is delivered.
        """
        context = _context(call)
        key = session_key_of(context) or ""
        if self._plugin is None:
            return {"status": "failed", "detail": self._problem, "unconfigured": True}
        event = call.params.get("event")
        if event == "session_start":
            return {"status": await self._plugin.warm(session_key=key, host=host_turn(context))}
        await self._settling.flush(key)
        report = await self._plugin.flush_session(
            self._behind.get(key, ()),
            session_key=key,
            host=host_turn(context),
            seconds=_within(call.deadline, _FLUSH_SECONDS * 1000),
            ended=event == "before_reset" or (event == "session_end" and call.params.get("reason") in _ENDS),
        )
        self._note_behind(key, report, ())
        return _captured(report)

    async def _health(self, call: Call) -> Json:
        del call
        if self._plugin is None:
            return {"ok": False, "text": self._problem}
        if self._plugin.settings.disabled:
            return {"ok": False, "text": "switched off by MEMRELAY_DISABLE"}
        client = connect(self._plugin.settings, self._environ, clock=SystemClock())
        try:
            async with client:
                version = await client.version(deadline=_HEALTH_SECONDS)
        except GatewayError as error:
            return {"ok": False, "text": f"health check failed: {error}"}
        return {"ok": True, "text": f"connected (ok, {version.version})"}

    async def _tool(self, call: Call) -> Json:
        if self._plugin is None:
            return {"text": f"Memory is not available: {self._problem}", "details": {"failed": True}}
        context = _context(call)
        files = await self._files_of(context)
        return await call_tool(self._plugin, call.params, context, state=self._state, files=files)

    async def _search(self, call: Call) -> Json:
        if self._plugin is None:
            raise BridgeError(UNAVAILABLE, self._problem)
        found = await search_hits(self._plugin, call.params, _context(call))
        if found["error"]:
            # An empty result would tell the host that nothing was found.
            raise BridgeError(UNAVAILABLE, str(found["error"]))
        return found

    async def _read(self, call: Call) -> Json:
        if self._plugin is None:
            return {"status": "not_found", "text": "", "path": ""}
        context = _context(call)
        return await read_file(self._plugin, call.params, context, files=await self._files_of(context))

    async def _project(self, call: Call) -> Json:
        context = _context(call)
        places, projects = await self._files_of(context), host_turn(context).projects
        if self._plugin is None or places is None or not projects:
            return {"lines": []}
        sessions = call.params.get("sessions")
        keys = sessions if isinstance(sessions, list) else []
        owners = frozenset(self._plugin.settings.owners)
        lines = await asyncio.to_thread(project_lines, places.workspace, projects, keys, owners)
        return {"lines": lines, "workspace": str(places.workspace)}

    async def _files_of(self, context: Json) -> AgentPlaces | None:
        return None if self._files is None else await asyncio.to_thread(self._files.places_of, context)

    async def _prompted(self, call: Call, context: Json) -> frozenset[str]:
        named = call.params.get("prompted")
        if self._files is None or not isinstance(named, list):
            return frozenset()
        names = [name for name in named if isinstance(name, str)]
        return await asyncio.to_thread(self._files.prompted, context, names)

    async def _command(self, call: Call) -> Json:
        if self._plugin is None:
            return {"text": f"Memory is not available: {self._problem}"}
        arguments, context = str(call.params.get("args", "")), _context(call)
        if arguments.split()[:1] == ["dreaming"]:
            text, enabled, files = dreaming_command(self._plugin, arguments.split()[1:], context)
            wanted = {"consolidation": enabled, "writeFiles": files}
            return {"text": text, **{name: value for name, value in wanted.items() if value is not None}}
        if arguments.split()[:1] == ["replaced"]:
            return {"text": await list_replaced(self._plugin, context)}
        told = await memory_command(self._plugin, arguments, context)
        if told is not None:
            return {"text": told}
        before = self._plugin.enabled_everywhere
        text = run_command(self._plugin, arguments, context)
        after = self._plugin.enabled_everywhere
        # The switch is shown in the host's configuration, too, which only the host itself may write.
        return {"text": text, **({"enabled": after} if before is not after else {})}

    async def _status(self, call: Call) -> Json:
        del call
        if self._plugin is None:
            return {"status": "failed", "detail": self._problem, "version": __version__}
        kept, _ = await asyncio.to_thread(kept_turns, self._environ)
        return {"status": "ok", "version": __version__, "kept_turns": kept, **asdict(self._plugin.status())}

    def _note_behind(self, key: str, report: CaptureReport, said: Sequence[Json]) -> None:
        if report.status in AGAIN and (key in self._behind or len(self._behind) < _MAX_BEHIND):
            self._behind[key] = (*self._behind.get(key, ()), *said)[-_MOST_BEHIND:]
        elif report.status in {"queued", "empty"}:
            self._behind.pop(key, None)


async def _look_again(plugin: AsyncMemoryPlugin, context: Json) -> None:
    """Call the relayer until it responds, so that the end of an outage is reported even if no turn happens meanwhile."""
    while plugin.outage:
        await asyncio.sleep(_LOOK_SECONDS)
        await plugin.warm(session_key=session_key_of(context), host=host_turn(context))


def _context(call: Call) -> Json:
    context = call.params.get("context", {})
    if not isinstance(context, Mapping):
        raise BridgeError(INVALID_PARAMS, "context is an object")
    return context


def _within(asked: float | None, milliseconds: float) -> float:
    own = milliseconds / 1000
    # Give up a little earlier than the host: a status with a reason is better than an aborted request.
    return own if asked is None else min(asked * _OWN_SHARE, own)


def _captured(report: CaptureReport) -> Json:
    told = asdict(report)
    return {name: told[name] for name in ("status", "new", "queued", "waiting", "detail", "ended")}
