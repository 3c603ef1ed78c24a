"""Keys and tokens of MCP servers and clients: who can read them, how long they are good, and that nothing loses them."""

from __future__ import annotations

import pytest
from wire_relayer import SECRET

from gateway_plugin.errors import IdentityError
from gateway_plugin.hosts.mcp import credentials
from gateway_plugin.hosts.mcp.credentials import (
    ClientTokens,
    Pairing,
    find_holder,
    issue,
    reply_to,
    save,
    saved,
)
from gateway_plugin.hosts.mcp.http import IDLE_SECONDS, MAX_NEW_A_MINUTE, MAX_SESSIONS_OF_ONE, Guard
from gateway_plugin.keys.identity import AgentHolder, RootHolder
from gateway_plugin.settings.model import PluginSettings
from relayer.wire.sealing import RootKeys

NOW = 1_800_000_000
pytestmark = pytest.mark.usefixtures("nothing_taken")


@pytest.fixture
def made(holder):
    return issue(holder, "coder", relayer="http://127.0.0.1:8787", days=90, label="laptop", now=NOW)


def test_saved_keys_are_one_agents_and_come_back_as_they_were(environ, made, holder):
    path = save(environ, made)
    assert path.stat().st_mode & 0o777 == 0o600
    assert saved(environ) == made
    assert holder.root.root.hex() not in path.read_text()
    assert "secret" not in repr(made)
    assert made.expires_at == NOW + 90 * 86_400
    found, from_file = find_holder(dict(environ), PluginSettings(), None)
    assert isinstance(found, AgentHolder)
    assert (found.only_agent, from_file) == ("coder", made)


@pytest.mark.row("MW-48")
@pytest.mark.parametrize("content", ["", "{}", '{"version": 9}', "not JSON"])
def test_a_damaged_file_is_told_of_and_left_as_it_is(environ, made, content):
    path = save(environ, made)
    path.write_text(content)
    with pytest.raises(IdentityError, match="mcp login"):
        find_holder(dict(environ), PluginSettings(), None)
    assert path.read_text() == content


def test_a_file_that_others_may_read_is_not_used(environ, made):
    save(environ, made).chmod(0o644)
    with pytest.raises(IdentityError, match="chmod 600"):
        saved(environ)


def test_a_secret_of_the_environment_goes_before_saved_keys(environ, made):
    save(environ, made)
    found, from_file = find_holder({**environ, "MEMRELAY_SECRET": SECRET}, PluginSettings(), None)
    assert isinstance(found, RootHolder)
    assert (found.account, from_file) == (RootKeys(bytes.fromhex(SECRET)).account, None)


def test_another_agent_than_the_saved_one_needs_the_gateways_secret_and_none_is_made(environ, made, tmp_path):
    save(environ, made)
    with pytest.raises(IdentityError, match="--agent NAME"):
        find_holder(dict(environ), PluginSettings(), "writer")
    assert not (tmp_path / "config" / "memrelay" / "secret").exists()
    (tmp_path / "config" / "memrelay" / "secret").write_text(SECRET)
    (tmp_path / "config" / "memrelay" / "secret").chmod(0o600)
    found, from_file = find_holder(dict(environ), PluginSettings(), "writer")
    assert (isinstance(found, RootHolder), from_file) == (True, None)


@pytest.mark.row("MW-48")
def test_a_reply_opens_for_who_asked_and_for_nobody_else(made):
    asking, other = Pairing.begin(), Pairing.begin()
    reply = reply_to(asking.code(NOW), made, now=NOW + 100)
    assert asking.open(reply) == made
    assert made.secret not in reply
    for wrong in (
        reply[:-4],
        "memrelay-keys-",
        "",
        asking.code(NOW),
        reply_to(other.code(NOW), made, now=NOW),
    ):
        with pytest.raises(IdentityError, match="no reply"):
            asking.open(wrong)


@pytest.mark.row("MW-48")
def test_a_reply_to_another_question_of_the_same_key_is_refused(made):
    asking = Pairing.begin()
    again = Pairing(asking.key, "another", asking.begun)
    with pytest.raises(IdentityError, match="another code"):
        again.open(reply_to(asking.code(NOW), made, now=NOW))


@pytest.mark.row("MW-48")
@pytest.mark.parametrize("late", [601, 86_400, -1000])
def test_a_code_is_good_for_five_minutes(made, late):
    with pytest.raises(IdentityError, match="older than five minutes"):
        reply_to(Pairing.begin().code(NOW), made, now=NOW + late)


@pytest.mark.row("MW-48")
def test_a_reply_that_comes_late_is_refused(made, monkeypatch):
    asking = Pairing.begin()
    reply = reply_to(asking.code(NOW), made, now=NOW)
    late = asking.begun + credentials.PAIRING_SECONDS + 1
    monkeypatch.setattr(credentials.time, "monotonic", lambda: late)
    with pytest.raises(IdentityError, match="begin again"):
        asking.open(reply)


@pytest.mark.parametrize("code", ["", "memrelay-pair-", "memrelay-pair-e30", "x" * 200])
def test_what_is_no_code_is_refused(made, code):
    with pytest.raises(IdentityError, match="CODE: "):
        reply_to(code, made, now=NOW)


def test_a_token_is_kept_as_a_digest_and_taken_back_by_its_id(environ):
    tokens, server = ClientTokens(environ), ClientTokens(environ)
    assert server.agent_of("x" * 43) is None
    coder, writer = tokens.add("coder", label="a", now=NOW), tokens.add("writer", label="b", now=NOW)
    assert (server.agent_of(coder), server.agent_of(writer)) == ("coder", "writer")
    assert server.agent_of("") is None
    assert coder not in tokens.path.read_text()
    (first, _) = tokens.all()
    assert tokens.remove(first.id)
    assert not tokens.remove(first.id)
    assert (server.agent_of(coder), server.agent_of(writer)) == (None, "writer")


@pytest.mark.parametrize("spoil", [lambda path: path.chmod(0o644), lambda path: path.write_text("{")])
def test_a_token_file_that_cannot_be_trusted_opens_nothing(environ, spoil):
    tokens = ClientTokens(environ)
    token = tokens.add("coder", label="", now=NOW)
    spoil(tokens.path)
    assert ClientTokens(environ).agent_of(token) is None


class Sessions:
    """What stands behind the guard: it opens a session for whoever has none, and ends it when told to."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, scope, receive, send):
        headers = []
        if b"mcp-session-id" not in dict(scope["headers"]):
            self.count += 1
            headers = [(b"mcp-session-id", b"%d" % self.count)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def ask(clock):
    guard = Guard(Sessions(), {"token-of-coder": "coder", "token-of-writer": "writer"}.get, clock)

    async def ask(token="token-of-coder", *, method="POST", session=None):
        headers = [(b"authorization", f"Bearer {token}".encode())]
        headers += [(b"mcp-session-id", session)] if session else []
        scope = {"type": "http", "method": method, "path": "/mcp", "headers": headers}
        answers = []

        async def send(message):
            answers.append(message)

        await guard(scope, None, send)
        return answers[0]["status"], dict(answers[0]["headers"])

    return ask


@pytest.mark.row("MW-48")
async def test_a_token_opens_so_many_sessions_and_idle_ones_end(ask, clock):
    for _ in range(MAX_SESSIONS_OF_ONE):
        assert (await ask())[0] == 200
    status, headers = await ask()
    assert (status, headers[b"retry-after"]) == (429, b"60")
    assert (await ask("token-of-writer"))[0] == 200
    assert (await ask(session=b"1"))[0] == 200
    clock.at += IDLE_SECONDS + 1
    assert (await ask())[0] == 200


@pytest.mark.row("MW-48")
async def test_sessions_are_opened_so_often_a_minute(ask, clock):
    for _ in range(MAX_NEW_A_MINUTE):
        status, headers = await ask()
        assert status == 200
        assert (await ask(method="DELETE", session=headers[b"mcp-session-id"]))[0] == 200
        clock.at += 1
    status, headers = await ask()
    assert (status, headers[b"retry-after"]) == (429, b"30")
    clock.at += 30
    assert (await ask())[0] == 200
