"""What turns were given is counted: by a thread of the outbox's, and by the one that consolidates and reads it right afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.keys.identity import NamespaceRef, RootHolder
from gateway_plugin.outbox.queue import Outbox, ValueUpdate
from gateway_plugin.recall.consolidation import RecallCounts
from relayer.wire.memories import RecallHit

OWNER, GATEWAY = NamespaceRef("researcher", "researcher", 1), NamespaceRef("", "", 0)
HIT = RecallHit(
    id="01m8079zqgt6n9m13psfyd6ak5", text="The ferry leaves at nine.", kind="fact", audience="agent", trust="user",
    created_at="2026-01-01T00:00:00Z", relevance=0.9, distance=0.1,
)  # fmt: skip


class HeldUp(Outbox):
    """A disk that is slow: whoever writes first goes on when it is told to."""

    def __init__(self, path: Path, holder: RootHolder) -> None:
        super().__init__(path, holder)
        self.writing, self.may_write = threading.Event(), threading.Event()

    def compare_and_set(self, update: ValueUpdate) -> None:
        self.writing.set()
        assert self.may_write.wait(30)
        super().compare_and_set(update)


@pytest.fixture
def outbox(tmp_path: Path, holder: RootHolder) -> Iterator[HeldUp]:
    made = HeldUp(tmp_path / "outbox.db", holder)
    yield made
    made.close()


def test_who_persists_while_another_does_reads_all_of_it_afterwards(outbox: HeldUp) -> None:
    counts = RecallCounts(outbox, GATEWAY, SystemClock())
    counts.saw(OWNER, [HIT], "When does the ferry leave?")
    read: list[int] = []

    def consolidates() -> None:
        counts.persist()
        read.extend(one.recalls for one in counts.counts(OWNER).values())

    threads = [threading.Thread(target=counts.persist), threading.Thread(target=consolidates)]
    threads[0].start()
    assert outbox.writing.wait(30)
    threads[1].start()
    # Time in which the second would be through, had it nothing to wait for.
    threads[1].join(0.2)
    outbox.may_write.set()
    for thread in threads:
        thread.join(30)
    assert read == [1]
