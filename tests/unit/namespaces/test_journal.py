"""The journal says the same whether it was written down in between or not."""

from __future__ import annotations

import random

import msgspec
import pytest

from relayer.namespaces.projection import ChangeKind, Journal, JournalParts

RECORDS = [b"%d" % number for number in range(1500)]


def noted(journal: Journal, rng: random.Random, seqs: range) -> None:
    for seq in seqs:
        for _ in range(rng.randrange(1, 4)):
            journal.note(seq, rng.choice(list(ChangeKind)), rng.choice(RECORDS))


async def written(journal: Journal) -> Journal:
    parts = msgspec.msgpack.decode(msgspec.msgpack.encode(await journal.parts()), type=JournalParts)
    return Journal.of_parts(parts)


@pytest.mark.parametrize("seed", range(4))
async def test_a_journal_that_was_written_and_read_says_the_same_after_every_mark(seed):
    whole, again = Journal(), Journal()
    for start in (1, 400, 800, 1200):
        noted(whole, random.Random(seed + start), range(start, start + 400))
        noted(again, random.Random(seed + start), range(start, start + 400))
        if start != 800:
            again = await written(again)
        for seq in (0, start - 1, start, start + 200, start + 399):
            assert again.after((seq, 1)) == whole.after((seq, 1))
    assert again.after((0, 0)) == whole.after((0, 0))


async def test_the_numbers_of_a_slot_go_on_after_it_was_written_down():
    journal = Journal()
    journal.note(7, ChangeKind.REMEMBERED, b"a")
    again = await written(journal)
    again.note(7, ChangeKind.REMEMBERED, b"b")
    assert [change.mark for change in again.after((0, 0))] == [(7, 1), (7, 2)]


async def test_pages_in_which_nothing_changed_are_written_as_they_are():
    journal = Journal()
    noted(journal, random.Random(1), range(1, 900))
    stored = await written(journal)
    assert await stored.parts() == await journal.parts()
    assert stored.nbytes < journal.nbytes / 2


async def test_a_copy_of_a_journal_says_nothing_of_what_is_noted_later():
    journal = Journal()
    journal.note(1, ChangeKind.REMEMBERED, b"a")
    copied = journal.copy()
    journal.note(2, ChangeKind.FORGOTTEN, b"a")
    assert [change.what for change in Journal.of_parts(await copied.parts()).after((0, 0))] == [
        ChangeKind.REMEMBERED
    ]
