"""The real source with one thing made wrong: what the simulation must be able to notice."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from sim_world import CROWDED, WORKERS, Parts, Plan


@dataclass(frozen=True)
class Patch:
    module: str
    right: str
    wrong: str


def _load(name: str, patches: list[Patch], **replaced: object) -> ModuleType:
    """Run a module's source anew, patched, with names of other modules replaced."""
    original = importlib.import_module(name)
    assert original.__file__ is not None
    source = Path(original.__file__).read_text()
    for patch in patches:
        if patch.module == name:
            assert source.count(patch.right) == 1, f"the source has changed: {patch.right}"
            source = source.replace(patch.right, patch.wrong)
    module = ModuleType(f"{name}.wrong")
    module.__file__ = original.__file__
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(source, f"{original.__file__} (wrong)", "exec"), module.__dict__)
    module.__dict__.update(replaced)
    return module


def parts_with(patches: list[Patch]) -> Parts:
    state = _load("relayer.domain.state", patches)
    flight = _load("relayer.log.single_flight", patches)
    replica = _load(
        "relayer.log.replica",
        patches,
        NamespaceState=state.NamespaceState,
        SingleFlight=flight.SingleFlight,
    )
    committer = _load("relayer.log.committer", patches)
    return Parts(replica=replica.Replica, committer=committer.Committer, strong=replica.Consistency.STRONG)


_COMMITTER = "relayer.log.committer"
_STATE = "relayer.domain.state"

# Schedules in which a variant shows sooner than in those of every seed.
SOONER: dict[str, Plan] = {
    "i10_batch_acknowledged_under_a_kept_id": CROWDED,
    "i7_a_finished_job_finishes_again": WORKERS,
}

WRONG: dict[str, list[Patch]] = {
    "i10_batch_acknowledged_under_a_kept_id": [
        Patch(
            _COMMITTER,
            "        self._writer = ports.randomness.bytes(BATCH_ID_SIZE)\n",
            "        self._writer = ports.randomness.bytes(BATCH_ID_SIZE)\n        self._kept = self._writer\n",
        ),
        Patch(
            _COMMITTER,
            "batch=self._random.bytes(BATCH_ID_SIZE),",
            "batch=self._kept,",
        ),
        Patch(
            _COMMITTER,
            "        await replica.catch_up()\n        return len(",
            "        tail = await replica.slots.read(entry.seq, 1)\n"
            "        for slot in tail.slots:\n"
            "            linked = await replica.slots.link(slot, built_on)\n"
            "            if linked.entry.batch == entry.batch:\n"
            "                await replica.catch_up()\n"
            "                self._queue.answer(\n"
            "                    lambda operation: self._known(operation) or self._undecidable(), batch\n"
            "                )\n"
            "                return True\n"
            "        await replica.catch_up()\n        return len(",
        ),
    ],
    "i5_acknowledged_before_it_is_applied": [
        Patch(
            _COMMITTER,
            "        if isinstance(outcome, Throttled):\n            raise",
            "        if isinstance(outcome, Created):\n"
            "            self._queue.answer(lambda _: Outcome(Result.STORED, b'', entry.seq), batch)\n"
            "            return True\n"
            "        if isinstance(outcome, Throttled):\n            raise",
        ),
    ],
    "i5_unknown_taken_for_written": [
        Patch(
            _COMMITTER,
            "        if isinstance(outcome, Created):\n            replica.store_time = outcome.store_time\n",
            "        if isinstance(outcome, Unknown):\n"
            "            outcome = Created('', replica.store_time)\n"
            "        if isinstance(outcome, Created):\n            replica.store_time = outcome.store_time\n",
        ),
    ],
    "i5_unknown_taken_for_failed": [
        Patch(
            _COMMITTER,
            "        if isinstance(outcome, Throttled):\n            raise",
            "        if isinstance(outcome, Unknown):\n"
            "            self._backoff.reset()\n"
            "            operations = [item.operation for item in batch]\n"
            "            self._queue.answer(lambda _: Outcome(Result.REFUSED), batch)\n"
            "            return True\n"
            "        if isinstance(outcome, Throttled):\n            raise",
        ),
    ],
    "i6_a_cancelled_request_takes_its_commit_along": [
        Patch(
            _COMMITTER,
            "        return await submission.answer\n",
            "        try:\n"
            "            return await submission.answer\n"
            "        except BaseException:\n"
            "            if self._task is not None:\n"
            "                self._task.cancel()\n"
            "            raise\n",
        ),
    ],
    "i7_repeated_operations_applied_again": [
        Patch(
            _STATE,
            "        known = self._outcomes.get(origin.id)\n        if known is not None:\n            return Applied",
            "        known = None\n        if known is not None:\n            return Applied",
        ),
        Patch(_STATE, "        first = self._by_idempotency(origin)\n", "        first = None\n"),
    ],
    "i7_a_finished_job_finishes_again": [
        Patch(_STATE, "        first = self._end_of(operation.job)\n", "        first = None\n"),
    ],
    "a_read_shares_what_began_before_it": [
        Patch(
            "relayer.log.single_flight",
            "wanted = self._begun + 1",
            "wanted = self._begun + (not self._turn.locked())",
        ),
    ],
    "strong_reads_that_read_nothing": [
        Patch(
            "relayer.log.replica",
            "        if consistency is Consistency.STRONG or (",
            "        if (",
        ),
    ],
}
