"""The demonstration's assertions fail when what they assert is not so."""

from __future__ import annotations

import pytest

from demo import checks
from demo.checks import Observation, TraceSearch
from demo.conversation import ProbeKind, ScriptProbe

RELATED = ScriptProbe(ProbeKind.RELATED, "What is the cat called?", expect="Biscuit & Co")
UNRELATED = ScriptProbe(ProbeKind.UNRELATED, "What is ethanol?")
CROSS = ScriptProbe(ProbeKind.CROSS, "What is the dog called?", forbid="Rusty")
OWNED = {"solo": {"m1"}, "other": {"m2"}}


def seen(probe, *texts, status=None, ids=("m1",)):
    memories = tuple(zip(ids, texts, strict=False))
    block = "\n".join(f"{at}. {text}" for at, text in enumerate(texts, 1))
    return Observation("solo", probe, status or ("ok" if texts else "empty"), block, memories, 7)


def held(found):
    return all(check.held for check in found)


def test_a_related_probe_holds_when_its_expectation_stands_in_the_block_escaped_or_not():
    assert held(checks.related([seen(RELATED, "The cat is biscuit &amp; co.")]))
    assert not held(checks.related([seen(RELATED, "The cat is Muffin.")]))
    assert not held(checks.related([seen(RELATED)]))


def test_of_a_dialogue_one_sentence_of_the_expected_message_is_a_hit():
    probe = ScriptProbe(ProbeKind.RELATED, "Cat?", expect="Hello! The cat is Biscuit. Bye.")
    assert checks.hit_rate([seen(probe, "The cat is Biscuit."), seen(probe, "No cat.")], curated=False) == (
        1,
        2,
    )


@pytest.mark.parametrize("status", ["timeout", "unavailable", "skipped:min_length", "refused:unauthorized"])
def test_silence_out_of_failure_is_no_silence(status):
    assert not held(checks.silent([seen(UNRELATED, status=status)], curated=True))


def test_silence_is_asserted_for_each_prompt_or_as_a_share():
    noise = [seen(UNRELATED, "Something."), *[seen(UNRELATED)] * 4]
    assert held(checks.silent(noise[1:], curated=True))
    assert not held(checks.silent(noise, curated=True))
    assert held(checks.silent(noise, curated=False))
    assert not held(checks.silent(noise[:4], curated=False))


def test_isolation_is_broken_by_a_forbidden_word_and_by_a_foreign_memory():
    assert held(checks.isolated([seen(CROSS, "I know no dog.")], OWNED, curated=True))
    assert not held(checks.isolated([seen(CROSS, "The dog is rusty.")], OWNED, curated=True))
    assert not held(checks.isolated([seen(CROSS, "A dog.", ids=("m2",))], OWNED, curated=True))
    assert not held(checks.isolated([seen(RELATED, "A cat.", ids=("m2",))], OWNED, curated=True))
    assert not held(checks.isolated([seen(CROSS, status="timeout")], OWNED, curated=True))


def test_a_stranger_is_refused_by_the_right_code_only():
    assert held(checks.strangers({"reads": "unauthorized"}))
    assert not held(checks.strangers({"reads": "ok"}))
    assert not held(checks.strangers({"reads": "internal_error"}))


def test_a_turn_without_relayer_is_silent_and_quick():
    assert checks.outage("unavailable", "", 0.1, 2.0).held
    assert not checks.outage("unavailable", "", 2.1, 2.0).held
    assert not checks.outage("ok", "text", 0.1, 2.0).held


def test_the_same_again_means_the_same_bytes_and_the_same_status():
    before = [seen(RELATED, "The cat is Biscuit."), seen(UNRELATED)]
    assert held(checks.same_again(before, before, curated=True))
    assert not held(checks.same_again(before, [before[0]], curated=True))
    assert not held(checks.same_again(before, [before[0], seen(UNRELATED, status="timeout")], curated=True))
    assert not held(
        checks.same_again(before, [seen(RELATED, "the cat is Biscuit."), before[1]], curated=True)
    )


def test_an_acknowledged_memory_that_is_not_listed_is_lost():
    assert held(checks.durable({"solo": ["m1"]}, {"solo": ["m1", "m2"]}))
    assert not held(checks.durable({"solo": ["m1", "m3"]}, {"solo": ["m1", "m2"]}))
    assert not held(checks.durable({"solo": ["m1"]}, {}))
    # Nothing acknowledged shows nothing.
    assert not held(checks.durable({"solo": []}, {"solo": []}))


def test_a_memory_is_twice_there_by_id_or_by_text():
    assert held(checks.once({"solo": [("m1", "a"), ("m2", "b")]}))
    assert not held(checks.once({"solo": [("m1", "a"), ("m1", "b")]}))
    assert not held(checks.once({"solo": [("m1", "a"), ("m2", "a")]}))


def test_traces_are_told_by_kind_with_the_file_that_holds_them():
    found = {check.claim: check for check in checks.sealed({"relayer.log": frozenset({"name"})}, 3, 100)}
    assert [check.held for check in found.values()] == [True, True, False]
    assert "relayer.log" in next(check.detail for check in found.values() if not check.held)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50), (0.95, 95), (1.0, 100), (0.001, 1)]
)  # fmt: skip
def test_percentiles_are_of_the_nearest_rank(share, expected):
    assert checks.percentile(range(100, 0, -1), share) == expected
    assert checks.percentile([], share) == 0


def test_one_sentence_of_a_text_is_a_trace_and_a_few_letters_are_not():
    traces = TraceSearch(
        ["Good morning. The seagrass report is due on 17 April. Thanks!"], ["anna", "marianne"]
    )
    assert traces.found_in(b"xx the SEAGRASS report is due on xx") == {"text"}
    assert traces.found_in(b"the report is late") == frozenset()
    assert traces.found_in(b"anna") == frozenset()
    assert traces.found_in(b"xMARIANNEx") == {"name"}
    assert traces.found_in(b"seagrass") == frozenset()
    assert traces.found_in(b"seagrass", words=True) == {"word"}
