"""Tools for programs that neither recall nor capture by themselves: what there is, what became of it, and what a text says.

Hosts that do both have no need of them and do not offer them (their model would pay for the descriptions at every turn). What is
said in `gateway_plugin.tools` about texts, errors and namespaces holds here, too.
"""

from __future__ import annotations

import hashlib
from typing import Final

from gateway_plugin.errors import RelayerRefused
from gateway_plugin.formatting import TRUSTED, audible_to, escape, may_be_shown
from gateway_plugin.identity import audience_name, typed
from gateway_plugin.injection import scan
from gateway_plugin.text.wrappers import strip
from gateway_plugin.tool_arguments import (
    AnalyzeArguments,
    HistoryArguments,
    JobArguments,
    ListArguments,
    ProfileArguments,
    StatusArguments,
    ToolError,
)
from gateway_plugin.tools import ToolAnswer, Toolbox, moment, shown_memory, with_age
from gateway_plugin.turn import Turn
from relayer.wire.memories import AnalyzeRequest, TurnItem
from relayer.wire.redaction import redact
from relayer.wire.schemas import AudienceName
from relayer.wire.service import ProfileLine, render

_DEADLINE: Final = 15.0
_ANALYZE_DEADLINE: Final = 55.0
# What a language model makes of a text is often there so soon; who wants the rest asks for the job.
_WAIT_MS: Final = 20_000
_EVERYBODY: Final[tuple[AudienceName, ...]] = ("agent", "direct", "group")


class MoreTools(Toolbox):
    """The tools of every host and these; made as a `Toolbox` is."""

    async def _done(self, parsed: object, turn: Turn) -> ToolAnswer:
        match parsed:
            case ListArguments():
                answer = await self._list(parsed, turn)
            case HistoryArguments():
                answer = await self._history(parsed, turn)
            case ProfileArguments():
                answer = await self._profile(parsed, turn)
            case AnalyzeArguments():
                answer = await self._analyze(parsed, turn)
            case JobArguments():
                answer = await self._job(parsed, turn)
            case StatusArguments():
                answer = await self._status(turn)
            case _:
                answer = await super()._done(parsed, turn)
        return answer

    async def _list(self, asked: ListArguments, turn: Turn) -> ToolAnswer:
        page = await self._client.list_memories(
            turn.identity, limit=asked.limit, cursor=asked.cursor, deadline=_DEADLINE
        )
        told = [one for one in page.memories if may_be_shown(one, audible_to(turn.heard_by))]
        details = {
            "total": page.total,
            "namespace": turn.namespace,
            "memories": [shown_memory(one) for one in told],
            **({"next_cursor": page.next_cursor} if page.next_cursor else {}),
        }
        if not told:
            return ToolAnswer("No memories.", details)
        lines = [f"{one.id} {with_age(one, self._clock)}" for one in told]
        more = f"(more with cursor {page.next_cursor})" if page.next_cursor else ""
        return ToolAnswer("\n".join(filter(None, [*lines, more])), details)

    async def _history(self, asked: HistoryArguments, turn: Turn) -> ToolAnswer:
        found = await self._find(asked.ref, turn)
        if found is None:
            raise ToolError("ref: there is no such memory; memory_search shows the ids")
        answer = await self._client.get_memory(turn.identity, found.id, deadline=_DEADLINE)
        versions = [one for one in answer.history if may_be_shown(one, audible_to(turn.heard_by))]
        versions = versions or [answer.memory]
        lines = [f"{one.id} [{one.state}] {with_age(one, self._clock)}" for one in versions]
        return ToolAnswer("\n".join(lines), {"memories": [shown_memory(one) for one in versions]})

    async def _profile(self, asked: ProfileArguments, turn: Turn) -> ToolAnswer:
        audiences = audible_to(turn.heard_by) or _EVERYBODY
        answer = await self._client.profile(
            turn.identity, max_tokens=asked.max_tokens, audiences=audiences, trusts=TRUSTED
        )

        def may_stand(line: ProfileLine) -> bool:
            # Checked again because a relayer's answer is input.
            verdict = scan(f"{line.speaker}\n{line.text}" if line.speaker else line.text)
            harmless = not verdict.blocked and not verdict.suspect
            return harmless and line.audience in audiences and line.trust in TRUSTED

        sections = tuple(
            section.model_copy(update={"lines": tuple(filter(may_stand, section.lines))})
            for section in answer.sections
        )
        document = render(tuple(section for section in sections if section.lines))
        told = "\n".join(escape(line) for line in document.splitlines())
        return ToolAnswer(told, {"document": told, "shown": sum(len(one.lines) for one in sections)})

    async def _analyze(self, asked: AnalyzeArguments, turn: Turn) -> ToolAnswer:
        clean = redact(strip(asked.text), self._settings.capture.redaction)
        verdict = scan(clean.text)
        if clean.blocked:
            raise ToolError(f"text: it holds what may not be stored ({', '.join(clean.blocked)})")
        if verdict.blocked:
            raise ToolError("Cannot store text containing disallowed patterns.")
        if not clean.text.strip():
            raise ToolError("text: it is empty once cleaned")
        at = moment("occurredAt", asked.occurred_at)
        # The model says so, and not a person, whoever the text quotes.
        said = TurnItem(role="assistant", text=clean.text, occurred_at=at, suspect=bool(verdict.suspect))
        request = AnalyzeRequest(
            turns=(said,),
            audience=audience_name(turn.said_to),
            host=turn.host.host,
            wait_ms=_WAIT_MS,
            # The same text again, from a model that saw no answer, is the same request.
            idempotency_key=hashlib.sha256(f"analyze\n{turn.namespace}\n{clean.text}".encode()).hexdigest(),
        )
        answer = await self._client.analyze(turn.identity, request, deadline=_ANALYZE_DEADLINE)
        kept = [one for one in answer.memories if one.status != "refused"]
        ids = list(dict.fromkeys([*(one.id for one in kept), *answer.facts]))
        pending = f" A language model goes on reading: job {answer.job_id}." if answer.job_id else ""
        shown = f" ids: {', '.join(ids)}" if ids else ""
        return ToolAnswer(
            f"Kept {len(ids)} {'memory' if len(ids) == 1 else 'memories'}.{shown}{pending}",
            {
                "state": answer.state,
                "ids": ids,
                "refused": len(answer.memories) - len(kept),
                **({"job_id": answer.job_id} if answer.job_id else {}),
            },
        )

    async def _job(self, asked: JobArguments, turn: Turn) -> ToolAnswer:
        try:
            job = await self._client.job(turn.identity, asked.job_id, deadline=_DEADLINE)
        except RelayerRefused as error:
            if error.status not in {400, 404, 422}:
                raise
            # What was stored by a call has no job: it was there when the call ended.
            memory = await self._find(asked.job_id, turn)
            if memory is None:
                raise ToolError("job_id: there is no such job, and no such memory") from error
            return ToolAnswer(f"done: {memory.id}", {"state": "done", "ids": [memory.id]})
        why = f" ({escape(job.reason)})" if job.reason else ""
        ids = f": {', '.join(job.memories)}" if job.memories else ""
        return ToolAnswer(f"{job.state}{why}{ids}", {"state": job.state, "ids": list(job.memories)})

    async def _status(self, turn: Turn) -> ToolAnswer:
        version = await self._client.version(deadline=_DEADLINE)
        held = await self._client.list_memories(turn.identity, limit=1, deadline=_DEADLINE)
        details = {
            "relayer": self._client.endpoint.origin,
            "version": version.version,
            "account": turn.identity.account,
            "agent": typed(turn.identity.agent),
            "namespace": turn.namespace,
            "memories": held.total,
        }
        return ToolAnswer("\n".join(f"{name}: {value}" for name, value in details.items()), details)
