from __future__ import annotations

from chaos_nemesis import Harm, plan

RELAYERS, LINKS, PARTS = ("r0", "r1", "r2"), ("l0", "l1", "l2"), ("seaweedfs",)


def test_a_seed_is_a_plan():
    assert plan(7, 120, RELAYERS, LINKS, PARTS) == plan(7, 120, RELAYERS, LINKS, PARTS)
    assert plan(7, 120, RELAYERS, LINKS, PARTS) != plan(8, 120, RELAYERS, LINKS, PARTS)


def test_every_harm_comes_to_everybody_whom_it_suits_and_is_over_in_time():
    deeds = [deed for seed in range(50) for deed in plan(seed, 120, RELAYERS, LINKS, PARTS)]
    to_processes = {(victim, harm) for victim in (*RELAYERS, *PARTS) for harm in (Harm.KILL, Harm.PAUSE)}
    to_links = {(victim, harm) for victim in LINKS for harm in (Harm.SLOW, Harm.LOST, Harm.CUT, Harm.MUTE)}
    assert {(deed.victim, deed.harm) for deed in deeds} == to_processes | to_links
    assert all(deed.at + deed.seconds <= 120 for deed in deeds)


def test_some_pauses_are_longer_than_any_deadline():
    deeds = [deed for seed in range(50) for deed in plan(seed, 120, RELAYERS, LINKS, PARTS)]
    assert max(deed.seconds for deed in deeds if deed.harm is Harm.PAUSE) > 30


def test_nobody_suffers_twice_at_once():
    for seed in range(50):
        ends: dict[str, float] = {}
        for deed in plan(seed, 120, RELAYERS, LINKS, PARTS):
            assert ends.get(deed.victim, 0.0) < deed.at
            ends[deed.victim] = deed.at + deed.seconds
