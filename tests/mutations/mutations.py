"""Mutations of the core and the plugin: one thing made wrong in the source, and the tests that must fail because of it.

Each mutation replaces one passage of one source file. The tests that are named with it are the narrowest that state the
broken promise; `run.py` applies a mutation to a copy of the tree and expects one of them to fail.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MUTATIONS", "Mutation"]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change to the source that breaks a promise.

    Attributes:
        name: what the changed program does, as words joined by hyphens.
        file: the source file, from the root of the repository.
        right: the passage as it is; it must occur exactly once.
        wrong: what replaces it.
        tests: files of tests, or single tests, at least one of which must fail.
    """

    name: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]

    def apply(self, source: str) -> str:
        """Return the changed source; raises `ValueError` unless the passage occurs exactly once."""
        if source.count(self.right) != 1:
            raise ValueError(
                f"{self.name}: the passage occurs {source.count(self.right)} times in {self.file}"
            )
        return source.replace(self.right, self.wrong)


MUTATIONS = (
    Mutation(
        "a-commit-is-not-checked",
        "relayer/log/namespace_log.py",
        "alive = await replica.vouched(entry.seq, (outcome.store_time,))",
        "alive = True",
        ("tests/unit/log/test_committer.py",),
    ),
    Mutation(
        "an-entry-of-another-history-is-applied",
        "relayer/log/objects.py",
        "if linked.entry.previous != after.digest:",
        "if False:",
        ("tests/unit/log/test_replica.py", "tests/unit/log/test_sealed_objects.py"),
    ),
    Mutation(
        "a-stale-replica-is-not-fenced",
        "relayer/log/replica.py",
        "if not await self.vouched(start, tail.times):",
        "if False:",
        ("tests/unit/log/test_replica.py", "tests/unit/log/test_committer.py"),
    ),
    Mutation(
        "a-sealed-object-opens-in-another-place",
        "relayer/wire/sealing.py",
        "return lp(int(object_type), account, incarnation, object_id)",
        'return lp(int(object_type), account, incarnation, "")',
        ("tests/unit/wire/test_wire_sealing.py", "tests/unit/wire/test_wire_vectors.py"),
    ),
    Mutation(
        "every-object-has-the-same-key-and-nonce",
        "relayer/wire/sealing.py",
        "header, place, salt=salt, length=64)",
        "header, place, salt=bytes(32), length=64)",
        ("tests/unit/wire/test_wire_sealing.py", "tests/unit/wire/test_wire_vectors.py"),
    ),
    Mutation(
        "the-key-of-a-namespace-needs-no-salt",
        "relayer/crypto.py",
        "incarnation, salt=salt)",
        "incarnation)",
        ("tests/unit/wire/test_wire_vectors.py", "tests/golden"),
    ),
    Mutation(
        "a-request-can-be-replayed",
        "relayer/http/limits.py",
        'raise HttpProblem("replayed")',
        "return",
        ("tests/unit/http/test_replays.py",),
    ),
    Mutation(
        "a-revoked-key-is-accepted",
        "relayer/access/accounts.py",
        "return certificate.agent_key in known.agent_keys or certificate.serial in known.serials",
        "return False",
        ("tests/unit/access/test_accounts.py",),
    ),
    Mutation(
        "a-revoked-account-is-accepted",
        "relayer/access/accounts.py",
        "if known.rules.is_revoked:",
        "if False:",
        ("tests/unit/access/test_account_rules.py",),
    ),
    Mutation(
        "a-rolled-back-account-is-believed",
        "relayer/access/accounts.py",
        "if rules.counter > known.rules.counter:",
        "if True:",
        ("tests/unit/access/test_account_rules.py",),
    ),
    Mutation(
        "a-quota-limits-nothing",
        "relayer/access/quotas.py",
        "if most and add and known + add > most:",
        "if False:",
        ("tests/security/test_quotas.py",),
    ),
    Mutation(
        "every-audience-hears-everything",
        "relayer/namespaces/records.py",
        "heard = [value for value in facet.values if not wanted.isdisjoint(value.split())]",
        "heard = list(facet.values)",
        ("tests/unit/namespaces/test_record_filters.py", "tests/unit/use_cases/test_remember_and_recall.py"),
    ),
    Mutation(
        "untrusted-memories-are-recalled",
        "relayer/namespaces/records.py",
        'for name, values in (("kind", kinds), ("trust", trusts))',
        'for name, values in (("kind", kinds),)',
        ("tests/unit/namespaces/test_record_filters.py", "tests/unit/use_cases/test_remember_and_recall.py"),
    ),
    Mutation(
        "erasing-leaves-older-versions",
        "relayer/use_cases/erase.py",
        "others = (item.supersedes, item.superseded_by, *opened.of_the_same_text(item.record))",
        "others: tuple[bytes, ...] = ()",
        ("tests/unit/use_cases/test_erase.py",),
    ),
    Mutation(
        "a-turn-is-lost-when-the-relayer-is-busy",
        "gateway_plugin/outbox/sender.py",
        "if error.code not in _LASTING and (error.status in _PASSING or error.status >= 500):",
        "if False:",
        ("tests/unit/gateway/outbox/test_sender.py",),
    ),
    Mutation(
        "a-turn-that-is-sent-twice-is-stored-twice",
        "relayer/domain/state.py",
        "        first = self._by_idempotency(origin)\n",
        "        first = None\n",
        ("tests/unit/domain/test_state.py", "tests/unit/use_cases/test_remember_and_recall.py"),
    ),
    Mutation(
        "a-recall-ignores-its-deadline",
        "gateway_plugin/recall/recaller.py",
        "answer = await self._client.recall(identity, asked, deadline=end - self._clock.monotonic())",
        "answer = await self._client.recall(identity, asked, deadline=30.0)",
        ("tests/unit/gateway/test_plugin.py", "tests/unit/gateway/test_status.py"),
    ),
    Mutation(
        "every-recall-takes-a-second-and-a-half",
        "gateway_plugin/recall/recaller.py",
        "        start = self._clock.monotonic()\n        identity, active = turn.identity, turn.active\n",
        "        start = self._clock.monotonic()\n        await asyncio.sleep(1.5)\n"
        "        identity, active = turn.identity, turn.active\n",
        ("tests/unit/gateway/test_plugin.py",),
    ),
    Mutation(
        "heartbeat-cron-and-subagent-runs-recall",
        "gateway_plugin/settings/model.py",
        '("memory", "heartbeat", "cron", "subagent", "hook"), description="kinds of run without recall"',
        '("memory", "hook"), description="kinds of run without recall"',
        ("tests/unit/gateway/turn/test_gates.py",),
    ),
    Mutation(
        "heartbeat-and-cron-runs-are-captured",
        "gateway_plugin/turn/gates.py",
        "skipped = skipped | _NEVER_CAPTURED",
        "skipped = set()",
        ("tests/unit/gateway/turn/test_gates.py",),
    ),
    Mutation(
        "a-turn-gets-four-memories-and-not-ten",
        "gateway_plugin/settings/model.py",
        '10, ge=1, le=100, title="Memories per turn"',
        '4, ge=1, le=100, title="Memories per turn"',
        ("tests/unit/gateway/settings/test_settings.py",),
    ),
    Mutation(
        "irrelevant-memories-pass-the-floor",
        "relayer/search/ranking.py",
        "return list(takewhile(lambda one: one >= floor, each))",
        "return list(each)",
        ("tests/unit/search/test_search_ranking.py", "tests/unit/search/test_relevance.py"),
    ),
    Mutation(
        "secrets-are-stored",
        "relayer/wire/redaction.py",
        "if action_for(rule.kind, policy) is Action.ALLOW:",
        "if True:",
        ("tests/unit/wire/test_redaction.py",),
    ),
    Mutation(
        "instructions-in-memories-are-injected",
        "gateway_plugin/recall/formatting.py",
        "    if verdict.blocked:\n        return",
        "    if False:\n        return",
        ("tests/unit/gateway/test_layers_of_defence.py", "tests/security/test_planted_memories.py"),
    ),
    Mutation(
        "a-fact-that-changed-replaces-nothing",
        "relayer/writing/drafts.py",
        "if draft.captured and not draft.replaces:",
        "if False:",
        (
            "tests/unit/use_cases/test_consolidating.py::test_an_explicit_change_takes_the_place_of_what_it_changes",
        ),
    ),
    Mutation(
        "a-restore-brings-erased-memories-back",
        "relayer/operator/restore.py",
        "self._erased = {row.incarnation: row for row in erased}",
        "self._erased: dict[bytes, Erased] = {}",
        ("tests/unit/operator/test_backup.py",),
    ),
    Mutation(
        "a-turn-is-given-four-memories",
        "gateway_plugin/settings/model.py",
        '10, ge=1, le=100, title="Memories per turn"',
        '4, ge=1, le=100, title="Memories per turn"',
        ("tests/integration/test_original_keys.py::test_so_many_memories_are_put_into_a_turn_at_most",),
    ),
    Mutation(
        "every-recall-waits-for-a-second-and-a-half",
        "gateway_plugin/recall/recaller.py",
        "            injection, trace = await self._search_and_select(turn, earlier, session, seconds)\n",
        "            await asyncio.sleep(1.5)\n            injection, trace = await self._search_and_select(turn, earlier, session, seconds)\n",
        (
            "tests/integration/test_what_is_recalled.py::test_a_turn_waits_about_a_tenth_of_a_second_for_its_memories",
        ),
    ),
    Mutation(
        "heartbeats-cron-jobs-and-subagents-recall",
        "gateway_plugin/settings/model.py",
        '("memory", "heartbeat", "cron", "subagent", "hook"), description',
        '("memory", "hook"), description',
        (
            "tests/unit/gateway/test_turns_as_promised.py::test_a_run_in_which_nobody_speaks_is_given_nothing_and_leaves_nothing",
        ),
    ),
    Mutation(
        "a-cron-jobs-session-is-a-persons",
        "gateway_plugin/turn/gates.py",
        '    RunKind.CRON: "cron",\n',
        "",
        (
            "tests/unit/gateway/test_turns_as_promised.py::test_a_run_in_which_nobody_speaks_is_given_nothing_and_leaves_nothing",
        ),
    ),
    Mutation(
        "the-hosts-memory-runs-are-turns",
        "gateway_plugin/turn/gates.py",
        "    if run in _OWN_RUNS or",
        "    if",
        (
            "tests/unit/gateway/test_turns_as_promised.py::test_a_run_in_which_nobody_speaks_is_given_nothing_and_leaves_nothing",
        ),
    ),
    Mutation(
        "short-prompts-are-searched-for",
        "gateway_plugin/turn/gates.py",
        "purpose is Purpose.CAPTURE or length >= least",
        "length",
        (
            "tests/unit/gateway/test_turns_as_promised.py::test_below_the_least_length_nobody_is_asked_and_the_reason_counts",
        ),
    ),
    Mutation(
        "answers-of-failed-runs-are-captured",
        "gateway_plugin/turn/gates.py",
        "not self.success or self.host.stop_reason in",
        "self.host.stop_reason in",
        (
            "tests/unit/gateway/test_turns_as_promised.py::test_of_a_run_that_failed_the_persons_words_alone_are_kept",
        ),
    ),
    Mutation(
        "auto-recall-is-never-off",
        "gateway_plugin/turn/gates.py",
        "    if not settings.recall.enabled:",
        "    if False:",
        ("tests/integration/test_original_keys.py::test_auto_recall_is_on_unless_it_is_false",),
    ),
    Mutation(
        "a-peer-hears-the-owner",
        "gateway_plugin/turn/gates.py",
        "return Hearing.of_peer(self._peer, self.person)",
        "return Hearing.of_owner(self.owners, self.person)",
        (
            "tests/integration/test_people_and_places.py::test_direct_chats_that_the_host_keeps_apart_are_kept_apart",
        ),
    ),
    Mutation(
        "a-group-hears-every-group",
        "gateway_plugin/turn/gates.py",
        'f"{_GROUP}:{place}", *itself)',
        "_GROUP, *itself)",
        (
            "tests/integration/test_people_and_places.py::test_a_group_hears_itself_in_every_thread_and_no_other_group_does",
        ),
    ),
    Mutation(
        "promoted-lines-may-be-other-peoples",
        "gateway_plugin/files/notes.py",
        " and not memory.source.place)",
        ")",
        ("tests/integration/test_promotions.py::test_what_groups_and_other_people_said_is_never_written",),
    ),
)
