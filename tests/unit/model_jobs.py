"""Jobs of a scripted model, for tests: what it says, and relayers that run its jobs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from doubles.scripted_chat import ScriptedChat

from relayer.extraction.llm.extractor import LlmExtractor
from relayer.jobs import working as jobs
from relayer.lib.job_queue import DailyLimits, JobLimits, JobQueue, ModelBudget
from relayer.lib.scheduler import Scheduler
from relayer.namespaces.context import FactWork
from relayer.use_cases.capture import get_job
from relayer.wire import codec as ulid


def says(*facts: dict[str, object], summary: str = "") -> str:
    return json.dumps({"facts": facts, "summary": summary})


def with_model(house, *script, budget: DailyLimits = DailyLimits(), summaries=False, **limits):  # noqa: B008 - frozen
    """Return a house whose model says what is scripted, and the model."""
    chat = ScriptedChat(*script)
    queue = JobQueue(house.clock, JobLimits(**limits))
    work = FactWork(LlmExtractor(chat, summaries=summaries), queue, ModelBudget(budget))
    return replace(house, ctx=replace(house.ctx, facts=work)), chat


@asynccontextmanager
async def working(house) -> AsyncIterator[None]:
    """Run the jobs of a relayer; errors that it reports fail the test."""
    errors: list[BaseException] = []
    randomness = house.ctx.randomness
    async with Scheduler(house.clock, randomness, lambda _, error: errors.append(error)) as scheduler:
        scheduler.start(jobs(house.ctx, house.ctx.facts, scheduler))
        yield
    assert not errors


async def until(true) -> None:
    """Let the event loop go round until something is true."""
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 - there is no one event for everything a test may wait for
            await asyncio.sleep(0.01)


async def look(house, job_id, wait_ms=0, agent="researcher"):
    return await house.call(get_job, job_id, wait_ms, agent=agent)


async def ended(house, job_id, agent="researcher"):
    """Wait for the end of a job, and return it."""
    opened = house.ctx.namespaces.peek(house.access(agent).account, agent)
    await until(lambda: opened.log.state.jobs[ulid.parse(job_id)].outcome is not None)
    return await look(house, job_id, agent=agent)
