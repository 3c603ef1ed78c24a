"""Each rule of the front for MemWal's clients, made wrong in a copy of the source: the test that is named must notice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Wrong:
    """What is made wrong: in a module, ``right`` becomes ``wrong``, and ``test`` fails."""

    module: str
    right: str
    wrong: str
    test: str

    def __str__(self) -> str:
        return f"{self.module}:{self.right.strip()[:50]}"


_WRONG = (
    Wrong("accept", 'raise _refused("missing header")', 'raise CompatError(400, "missing header")', "missing_header"),
    Wrong("accept", "raise CompatError(426,", "raise CompatError(401,", "missing_nonce_is"),
    Wrong("accept", "if not nonce_text and not self._window.legacy:", "if False:", "missing_nonce_is"),
    Wrong("accept", "return uuid.UUID(text).bytes if len(text) == 36 else None", "return uuid.UUID(text).bytes if len(text) == 36 else bytes(16)", "not_in_form"),
    Wrong("accept", "> self._window.drift", "> 10 * self._window.drift", "outside_of_the_window"),
    Wrong("accept", "abs(now - int(stamp))", "(now - int(stamp))", "outside_of_the_window"),
    Wrong("accept", '"ERR_TIMESTAMP_OUT_OF_BOUNDS"', '""', "outside_of_the_window"),
    Wrong("accept", "VerifyKey(signed.key).verify(", "signed.key and (", "signed_field_is_covered"),
    Wrong("accept", "fields += [self.nonce_text, self.account]", "fields += [self.nonce_text, '']", "without_any_account"),
    Wrong("accept", "fields = [self.stamp, method, target, body_digest.hex()]", "fields = [self.stamp, method, target, hashlib.sha256(b'{}').hexdigest()]", "raw_bytes"),
    Wrong("accept", "target = request.raw_path\n", "target = request.raw_path.partition('?')[0]\n", "raw_bytes"),
    Wrong("accept", "self._note(signed, now)", "pass", "nonce_counts_once"),
    Wrong("accept", "self._nonces.note(signed.key,", "self._nonces.note(bytes(32),", "nonce_counts_once"),
    Wrong("accept", "nonce = hashlib.sha256(raw_signature).digest()[:16]", "nonce = uuid.uuid4().bytes", "legacy_clients"),
    Wrong("accept", "STEADY_SECONDS = 0.1", "STEADY_SECONDS = 0.0", "after_the_same_time"),
    Wrong("accept", "if not registered.admits(key):", "if not registered.keys:", "revoked_one_is_out"),
    Wrong("accept", "elif shown != contract.address_of(key) or not", "elif not", "own_account_alone"),
    Wrong("accept", "or not self._accounts.serves(shown):", "or False:", "accounts_are_listed"),
    Wrong("accept", "seconds = max(1, -int(-wait // 1))", "seconds = 60", "points_run_out"),
    Wrong("accept", 'if plain == "/api/remember/bulk/status" or (', 'if plain == "x" and (', "points_run_out"),
    Wrong("accept", '"/api/remember": 5.0', '"/api/remember": 1.0', "points_run_out"),
    Wrong("contract", "_LABEL + shown.encode()", "shown.encode()[:0]", "own_account_alone"),
    Wrong("contract", "names.hashed(name)}", "names.normalise(name)}", "any_text"),
    Wrong("contract", "self._siv.encrypt(plain, [what.encode()])", "self._siv.encrypt(plain, [b''])", "job_looks_like_none or done_is"),
    Wrong("memories", '{"job_id": job.token, "status": "running"}, 202', '{"job_id": job.token, "status": "running"}, 200', "done_is_recallable"),
    Wrong("memories", "if not 1 <= len(body.items) <= contract.MAX_BULK:", "if False:", "bad_input"),
    Wrong("memories", "found = [jobs[place] for place in range(len(items))]", "found = list(jobs.values())", "keeps_its_order"),
    Wrong("memories", '"status": "not_found"}', '"status": "failed"}', "keeps_its_order"),
    Wrong("memories", "if gone is None or key is None:", "if True:", "one_idempotency_key"),
    Wrong("memories", "idempotency_key=key)", "idempotency_key=None)", "known_to_another"),
    Wrong("memories", "WAIT_SECONDS = 2.0", "WAIT_SECONDS = 0.0", "embedder_is_away"),
    Wrong("memories", "or memory.searchable", "or True", "embedder_is_away"),
    Wrong("memories", "raise CompatError(402,", "raise CompatError(400,", "full_quota"),
    Wrong("memories", '"status": "pending",', '"status": "done",', "analyze_stores"),
    Wrong("memories", "for text in _parts(body.text)", "for text in [body.text]", "analyze_stores"),
    Wrong("memories", "limit = min(body.limit, contract.MAX_RESULTS)\n    recent", "limit = body.limit\n    recent", "best_first"),
    Wrong("memories", "floor=0.0", "floor=0.99", "best_first"),
    Wrong("memories", "one.hit.distance < body.max_distance", "one.hit.distance >= body.max_distance", "best_first"),
    Wrong("memories", "ranks = weights is not None and weights.rank", "ranks = weights is not None", "weights_rank"),
    Wrong("memories", "weights=None if body.sort is not None else body.scoring_weights", "weights=body.scoring_weights", "weights_rank"),
    Wrong("memories", "key=lambda one: (-one.hit.created_at, one.hit.distance)", "key=lambda one: one.hit.created_at", "weights_rank"),
    Wrong("memories", "if not deadline.remaining():", "if False:", "may_take_no_time"),
    Wrong("contract", "0 <= value <= _MOST_WEIGHT", "0 <= value", "bad_input"),
    Wrong("contract", "2.0 ** (-max(0.0, age_days) / half_life)", "1.0", "a_score_is"),
    Wrong("contract", "if not text.strip():", "if not text:", "bad_input"),
    Wrong("opaque", "if vector is None or len(vector) != len(query):", "if vector is None:", "client_sealed"),
    Wrong("opaque", "sorted(hits, key=lambda hit: hit[0])", "sorted(hits, key=lambda hit: -hit[0])", "client_sealed"),
    Wrong("listings", "await _erased(call, access)\n", "pass\n", "forget_destroys"),
    Wrong("listings", "if call.parameter.lower() != call.caller.shown:", "if False:", "own"),
    Wrong("listings", "time_of(row) <= until]", "True]", "walk_over_pages"),
    Wrong("listings", "render_time(until) if more else None", "render_time(until)", "walk_over_pages"),
    Wrong("public", '"network": "localnet"', '"network": "testnet"', "what_is_open"),
    Wrong("public", '"python": "0.1.0"', '"python": "0.2.0"', "what_is_open"),
    Wrong("public", 'forwarded if forwarded in {"http", "https"} else', "", "what_is_open"),
    Wrong("accept", "int(signed.stamp) + self._window.drift", "int(signed.stamp) - 300", "nonce_is_remembered"),
    Wrong("accept", "if len(values) > 1:", "if False:", "comes_twice"),
    Wrong("accept", '{"x-auth-error": "AUTH_UPSTREAM_UNAVAILABLE"}', "{}", "store_is_silent"),
    Wrong("accept", "longest = max(range", "longest = min(range", "points_run_out"),
    Wrong("accept", '"retry_after_seconds": seconds}', "}", "points_run_out"),
    Wrong("accept", 'raise _refused("signature", steady=True) from error', 'raise _refused(request.headers["x-signature"]) from error', "no_header_of_a_refused"),
    Wrong("accept", '"/api/remember/bulk": 10.0', '"/api/remember/bulk": 1.0', "every_route_costs"),
    Wrong("accept", '"/api/ask": 2.0', '"/api/ask": 1.0', "every_route_costs"),
    Wrong("accept", '"/api/restore": 3.0', '"/api/restore": 1.0', "every_route_costs"),
    Wrong("accept", '"/api/analyze": 5.0', '"/api/analyze": 1.0', "every_route_costs"),
    Wrong("accept", '"/api/remember/manual": 3.0', '"/api/remember/manual": 1.0', "every_route_costs"),
    Wrong("memories", 'check_text(body.text, "text", contract.MAX_REMEMBERED)', 'check_text(body.text, "text", 1 << 40)', "bad_input"),
    Wrong("memories", "if not 1 <= len(body.job_ids) <= contract.MAX_BULK:", "if False:", "bad_input"),
    Wrong("memories", "if key is not None and not 1 <= len(key) <= _LONGEST_KEY:", "if False:", "key_of_idempotency"),
    Wrong("memories", "occurred_at=body.occurred_at", "occurred_at=None", "dated_by_when"),
    Wrong("memories", "call.to.acceptance.points.spend(", "(lambda *_: None)(", "costs_a_point_more"),
    Wrong("memories", "if not call.caller.legacy:", "if True:", "legacy_clients"),
    Wrong("memories", 'shown | {"created_at"', 'shown | {"at"', "weights_rank"),
    Wrong("memories", "min(max(5 * limit, 50), contract.MAX_RESULTS) if recent else limit", "limit", "recent_orders"),
    Wrong("memories", "min(MOST_SECONDS, body.deadline_ms / 1000 * 0.95)", "MOST_SECONDS", "may_take_no_time"),
    Wrong("memories", "if one.hit.distance <= _RELEVANT]", "if one.hit.distance < 0]", "ask_without"),
    Wrong("contract", "limit: _Count = 5", "limit: _Count = 10", "ask_takes"),
    Wrong("contract", "occurred_at: Annotated[int | None, BeforeValidator(_at)] = None", "occurred_at: Any = None", "bad_input"),
    Wrong("contract", "{k: v for k, v in value.items() if v is not None} if", "value if", "null_is"),
    Wrong("contract", "base64.b64decode(value, validate=True)", "base64.b64decode(value)", "client_sealed or bad_input"),
    Wrong("contract", 'raise bad("namespace must not be empty")', "pass", "bad_input"),
    Wrong("listings", 'raise bad("invalid cursor") from error', "return -1, '', None", "five_hundred"),
    Wrong("listings", "min(max(int(text), 1), contract.MAX_PAGE)", "int(text)", "five_hundred"),
    Wrong("listings", "deleted = len(await _live_in(call, access))", "deleted = 0", "forget_destroys"),
    Wrong("listings", '"skipped": total - lacking', '"skipped": 0', "restore_counts"),
    Wrong("front", "raise CompatError(422,", "raise CompatError(400,", "bad_input"),
    Wrong("front", 'more = {"code": "RECALL_TIMEOUT", "step": step}', "more = {}", "may_take_no_time"),
    Wrong("front", 'message = f"{message} (traceId: {context.request_id})"', "pass", "fails_inside"),
    Wrong("front", 'return CompatError(500, "Internal server error"', "return CompatError(500, str(error)", "fails_inside"),
    Wrong("public", '"version": "1",', '"version": "2",', "first_version"),
    Wrong("public", '"owner": "Immutable",', "", "first_version"),
    Wrong("public", "if wanted.lower() != PACKAGE_ID:", "if False:", "first_version"),
    # What MCP clients see.
    Wrong("accept", 'if kind.lower() == "bearer" else None', "if token else None", "wrong_key_is"),
    Wrong("accept", 'error.headers["WWW-Authenticate"] = CHALLENGE', "pass", "wrong_key_is"),
    Wrong("accept", "await self._admit(key, account, peer)\n        except", "pass\n        except", "wrong_key_is"),
    Wrong("front", "told = refusal_of(problem.status, message)", "pass", "wrong_key_is"),
    Wrong("sessions", "_CODES = {401: UNAUTHORISED,", "_CODES = {401: FAILED,", "wrong_key_is"),
    Wrong("sessions", "429: TOO_MANY}", "}", "too_many_sessions"),
    Wrong("sessions", "if len(begun) == MOST_NEW_A_MINUTE and now - begun[0] < _MINUTE:", "if False:", "too_many_sessions"),
    Wrong("sessions", ">= MOST_OF_PEER or", ">= 10_000 or", "so_many_streams"),
    Wrong("sessions", "if one.gone() or now", "if now", "so_many_streams"),
    Wrong("sessions", "self._ended[session] = True", "pass", "keys_alone"),
    Wrong("mcp", "if read[0] != _owner(call.caller):", "if False:", "keys_alone"),
    Wrong("mcp", "or now - read[1] > SESSION_MS", "", "lasts_a_day"),
    Wrong("mcp", 'raise CompatError(404, rule="no session")\n    if read[0]', 'raise CompatError(400, rule="no session")\n    if read[0]', "keys_alone"),
    Wrong("contract", "return None if raw is None else (raw[:_ACCOUNT],", "return None if raw else (bytes(32),", "another_relayer"),
    Wrong("mcp", "if _owner(call.caller) != opened.owner:", "if False:", "where_messages_go"),
    Wrong("table", "mcp.messages, signed=False, bearer=True", "mcp.messages, signed=False", "where_messages_go"),
    Wrong("mcp", "if opened is None:\n        raise CompatError(404,", "if opened is None:\n        raise CompatError(400,", "none_of_the_other"),
    Wrong("mcp", 'Reply(b"Accepted", 202,', 'Reply(b"Accepted", 200,', "where_messages_go"),
    Wrong("mcp", "event: endpoint\\ndata:", "event: place\\ndata:", "where_messages_go"),
    Wrong("mcp", 'yield b": beat\\n\\n"', "pass", "where_messages_go"),
    Wrong("mcp", '"Cache-Control": "no-cache, no-transform"', '"Cache-Control": "no-store"', "where_messages_go"),
    Wrong("mcp", "if error.status == 401:", "if False:", "stream_ends"),
    Wrong("mcp", "if version is not None and version not in VERSIONS:", "if False:", "version_is"),
    Wrong("mcp", "asked if asked in VERSIONS else VERSIONS[-1]", "VERSIONS[-1]", "version_is"),
    Wrong("mcp", "if origin is None:", "if True:", "another_site"),
    Wrong("mcp", "call.to.sessions.cancel(session, _params(message)", "print(_params(message)", "cancelled"),
    Wrong("mcp", "_named(call) or namespace or", "", "calls_or_the_headers"),
    Wrong("mcp", "if name not in TOOLS:", "if not name:", "no_tool_or_method"),
    Wrong("mcp", "if token is None:", "if True:", "every_beat"),
    Wrong("mcp", "else escape(text)", "else text", "harmless"),
    Wrong("mcp", 'f\'<memwal-memories note="{_NOTE}">\', ', "'', ", "harmless"),
    Wrong("mcp", "to.acceptance.points.charge(author.hex(), signer.account, tool.points)", "pass", "tools_cost"),
    Wrong("mcp", "not 1 <= value <= most", "False", "bad_arguments"),
    Wrong("mcp", '"isError": bool(failed)', '"isError": False', "bad_arguments"),
    Wrong("mcp", "[score={1 - one['distance']:.3f}]", "[{1 - one['distance']:.3f}]", "every_tool"),
    Wrong("mcp", '"readOnlyHint": self.reads', '"readOnlyHint": True', "every_tool"),
    Wrong("mcp", "outcome=failed or", "said=dict(arguments), outcome=failed or", "reaches_a_log"),
)  # fmt: skip


_RIGHT = Wrong("accept", "STEADY_SECONDS = 0.1", "STEADY_SECONDS = 0.1", "nonce or walk or sealed")
# At once, each over a copy of its own: of ten seconds they compute one, and for what a wrong front leaves hanging wait 20.
_PROCESSES = 4


@pytest.mark.tier("prove")
@pytest.mark.timeout(3100)
def test_a_front_without_one_of_its_rules_is_noticed_and_the_right_one_is_not(tmp_path: Path) -> None:
    """One test of all, because tests that share a process's work may be given to two."""
    shares = [_WRONG[first::_PROCESSES] for first in range(_PROCESSES)]
    places = [tmp_path / str(number) for number in range(_PROCESSES)]
    with ThreadPoolExecutor(_PROCESSES) as threads:
        ends = list(threads.map(lambda place, share: _ends(place, [*share, _RIGHT]), places, shares))
    assert [of_the_right_one for *_, of_the_right_one in ends] == [0] * _PROCESSES
    told = [
        (one, end)
        for share, (*ended, _) in zip(shares, ends, strict=True)
        for one, end in zip(share, ended, strict=True)
    ]
    assert len(told) == len(_WRONG)
    assert [str(one) for one, end in told if end != 1] == []


def _ends(place: Path, fronts: list[Wrong]) -> list[int]:
    """Return how the tests ended over a copy of the source, for each of the fronts."""
    place.mkdir()
    shutil.copytree(ROOT / "relayer", place / "relayer", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("tests", "gateway_plugin", "memrelay"):
        (place / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "pyproject.toml", place)
    (place / "wrong.json").write_text(json.dumps([astuple(one) for one in fronts]))
    ended = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "memwal_wrong.py"), str(place)],
        cwd=place,
        env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        | {"PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return list(json.loads((place / "ends.json").read_text()))
