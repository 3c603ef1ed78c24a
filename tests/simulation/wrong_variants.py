"""The real source with one thing made wrong: what the simulation must be able to notice."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from sim_plans import CROWDED, LATE, STALLED, TRUSTING, WORKERS, Plan
from sim_process import Parts


@dataclass(frozen=True)
class Patch:
    module: str
    right: str
    wrong: str


def _load(name: str, patches: list[Patch], loaded: Sequence[str]) -> ModuleType:
    """Run a module's source anew, patched, importing from others that were loaded so as they are now."""
    original = importlib.import_module(name)
    assert original.__file__ is not None
    source = Path(original.__file__).read_text()
    for patch in patches:
        if patch.module == name:
            assert source.count(patch.right) == 1, f"the source has changed: {patch.right}"
            source = source.replace(patch.right, patch.wrong)
    for other in loaded:
        source = source.replace(f"from {other} import", f"from {other}.wrong import")
    module = ModuleType(f"{name}.wrong")
    module.__file__ = original.__file__
    sys.modules[module.__name__] = module  # dataclasses look their module up, and so do imports
    exec(compile(source, f"{original.__file__} (wrong)", "exec"), module.__dict__)
    return module


# Each after what it imports.
_MODULES = (
    "relayer.domain.state",
    "relayer.domain.snapshot",
    "relayer.lib.work",
    "relayer.log.objects",
    "relayer.log.replica",
    "relayer.log.namespace_log",
    "relayer.log.compactor",
    "relayer.log.collector",
    "relayer.log.index_file",
    "relayer.log.erasure",
)


def parts_with(patches: list[Patch]) -> Parts:
    loaded: dict[str, ModuleType] = {}
    for name in _MODULES:
        loaded[name] = _load(name, patches, tuple(loaded))
    return Parts(
        replica=loaded[_REPLICA].Replica,
        committer=loaded[_COMMITTER].Committer,
        compactor=loaded[_COMPACTOR].Compactor,
        collector=loaded[_COLLECTOR].Collector,
        erasure=loaded[_ERASURE],
        indexes=loaded[_INDEXES].IndexObjects,
        strong=loaded[_REPLICA].Consistency.STRONG,
    )


_COMMITTER = "relayer.log.namespace_log"
_STATE = "relayer.domain.state"
_REPLICA = "relayer.log.replica"
_COMPACTOR = "relayer.log.compactor"
_COLLECTOR = "relayer.log.collector"
_MANIFEST = "relayer.log.objects"
_ERASURE = "relayer.log.erasure"
_INDEXES = "relayer.log.index_file"

# Schedules in which a variant shows sooner than in those of every seed.
SOONER: dict[str, Plan] = {
    "i10_batch_acknowledged_under_a_kept_id": CROWDED,
    "i7_a_finished_job_finishes_again": WORKERS,
    "i2_deleted_before_the_watermark_moves": STALLED,
    "i3_no_check_after_the_create": STALLED,
    "i4_the_end_of_a_tail_compared": STALLED,
    "i9_a_manifest_swapped_whoever_changed_it": STALLED,
    "i9_a_compactor_deletes_what_it_takes_for_lost": STALLED,
    "i11_local_clocks_in_the_collector": TRUSTING,
    "a_collector_that_does_not_wait": TRUSTING,
    "what_no_manifest_names_deleted_by_age_alone": LATE,
}

WRONG: dict[str, list[Patch]] = {
    "an_erasure_confirmed_before_the_sweep": [
        Patch(_ERASURE, "            or manifest.manifest.gc_swept < report.epoch\n", ""),
        Patch(_ERASURE, "names += await self._dead_slots(report.seq) + ", "names = "),
    ],
    "an_erasure_that_writes_no_segment_again": [
        Patch(_ERASURE, "if row.reduced_at < report.seq and any(", "if row.reduced_at < 0 and any("),
    ],
    "an_erasure_that_overlooks_stored_indexes": [
        Patch(_ERASURE, "return [key for key in keys if _seq_of(key) < seq]", "return []"),
        Patch(_ERASURE, "return bool(manifest.index_key) and manifest.index_seq < seq", "return False"),
    ],
    "an_index_that_stays_named_when_a_swap_was_lost": [
        Patch(_ERASURE, "return bool(manifest.index_key) and manifest.index_seq < seq", "return False"),
    ],
    "a_collection_that_leaves_versions": [
        Patch(
            _COLLECTOR,
            "await discard(self._store, keys, Layout",
            "await _only_delete(self._store, keys, Layout",
        ),
        Patch(
            _COLLECTOR,
            "def seq_of(key",
            "async def _only_delete(store, keys, _):\n"
            "    for key in keys:\n"
            "        await store.delete(key)\n\n\n"
            "def seq_of(key",
        ),
    ],
    "i2_deleted_before_the_watermark_moves": [
        Patch(
            _COLLECTOR,
            "        if stage is CollectionStage.MOVE:\n",
            "        if stage is CollectionStage.MOVE:\n"
            "            await self._sweep(msgspec.structs.replace(manifest, gc_watermark=manifest.snap_seq))\n",
        ),
    ],
    "i3_no_check_after_the_create": [
        Patch(
            _COMMITTER,
            "alive = await replica.vouched(entry.seq, (outcome.store_time,))",
            "alive = True",
        ),
    ],
    "i4_the_end_of_a_tail_compared": [
        Patch(
            _REPLICA,
            "if not await self.vouched(start, tail.times):",
            "if not await self.vouched(start + len(tail.slots), tail.times):",
        ),
    ],
    "i9_a_manifest_swapped_whoever_changed_it": [
        Patch(
            _MANIFEST,
            "return await self._ports.store.swap(self._key, sealed, seen.etag)",
            "now = await self._ports.store.get(self._key)\n"
            "        return await self._ports.store.swap(self._key, sealed, now.etag)",
        ),
    ],
    "i9_a_compactor_deletes_what_it_takes_for_lost": [
        Patch(
            _COMPACTOR,
            "        return await self._replica.manifest.settle(\n"
            "            seen, new, lambda now: any(item.key == row.key for item in now.segments)\n"
            "        )\n",
            "        won = await self._replica.manifest.settle(\n"
            "            seen, new, lambda now: any(item.key == row.key for item in now.segments)\n"
            "        )\n"
            "        if not won:\n"
            "            await self._ports.store.delete(row.key)\n"
            "        return won\n",
        ),
    ],
    "i11_local_clocks_in_the_collector": [
        Patch(
            _COLLECTOR,
            "        self._store = ports.store\n",
            "        self._store = ports.store\n        self._clock = ports.clock\n",
        ),
        Patch(
            _COLLECTOR,
            "stage_of(seen.manifest, seen.store_time, self._grace_ms)",
            "stage_of(seen.manifest, self._clock.now_ms(), self._grace_ms)",
        ),
        Patch(_COLLECTOR, "gc_moved_at=seen.store_time)", "gc_moved_at=self._clock.now_ms())"),
    ],
    "a_collector_that_does_not_wait": [
        Patch(_COLLECTOR, "        self._grace_ms = grace_ms\n", "        self._grace_ms = 0\n"),
    ],
    "what_no_manifest_names_deleted_by_age_alone": [
        Patch(
            _COLLECTOR,
            "loose = await self._loose(decided.gc_moved_at)",
            "loose = await self._loose((await self._manifest.see()).store_time - self._grace_ms)",
        ),
    ],
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
            "                    lambda operation: self._known(operation) or Outcome(OperationResult.REFUSED), batch\n"
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
            "            self._queue.answer(lambda _: Outcome(OperationResult.STORED, b'', entry.seq), batch)\n"
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
            "            self._queue.answer(lambda _: Outcome(OperationResult.REFUSED), batch)\n"
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
            "        known = self.known.outcome_of(this)\n        if known is not None:\n            return Applied",
            "        known = None\n        if known is not None:\n            return Applied",
        ),
        Patch(_STATE, "        first = self._by_idempotency(origin)\n", "        first = None\n"),
    ],
    "i7_a_finished_job_finishes_again": [
        Patch(_STATE, "        first = self._end_of(operation.job)\n", "        first = None\n"),
    ],
    "a_read_shares_what_began_before_it": [
        Patch(
            "relayer.lib.work",
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
