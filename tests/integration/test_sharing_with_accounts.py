"""A person shares a namespace with an agent of another account, whose gateway accepts the invitation, until that is ended."""

from __future__ import annotations

import asyncio
import dataclasses
import html
import json
import secrets
import stat
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from nacl.signing import SigningKey
from typed_commands import machine, run_gateway

from gateway_plugin import MemoryPlugin
from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.calls.trust import TrustStore
from gateway_plugin.client import RelayerClient, on_loop
from gateway_plugin.errors import RelayerRefused
from gateway_plugin.hosts.openclaw.commands import run_command
from gateway_plugin.keys import gateway_secret
from gateway_plugin.keys.identity import Identity, invited
from gateway_plugin.keys.invitations import Invitation
from gateway_plugin.turn.gates import HostTurn
from relayer.testing.local_relayer import LocalRelayer
from relayer.wire import codec as base64url
from relayer.wire.schemas import MemoryItem, RememberRequest
from relayer.wire.sealing import FIRST_GENERATION, RootKeys
from relayer.wire.signing import Right

BOILER = "The boiler in the cellar of the mill is serviced by Margarethe every October."
KETTLE = "The kettle in the kitchen of the mill has a cracked lid."
QUESTION = "Who services the boiler in the cellar of the mill?"
LID = "Which lid in the kitchen of the mill is cracked?"
DAY = 24 * 3600
KEY = bytes(SigningKey(bytes(32)).verify_key).hex()


@dataclass
class Gateway:
    """A machine with a gateway, its secret, and what is typed there."""

    place: Path
    environment: dict[str, str]

    @property
    def root(self) -> RootKeys:
        return RootKeys(bytes.fromhex(self.environment["MEMRELAY_SECRET"]))

    def run(self, *arguments: str, code: int = 0) -> str:
        done = run_gateway(self.environment, *arguments)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    def key(self, agent: str) -> str:
        shown: dict[str, str] = json.loads(self.run("keys", "show", "--agent", agent, "--json"))
        return shown["agent_key"]

    def plugin(self) -> MemoryPlugin:
        return MemoryPlugin(environ=dict(self.environment), secret=self.environment["MEMRELAY_SECRET"])

    def recalled(self, question: str = QUESTION, agent: str = "coder", host: HostTurn | None = None) -> str:
        with self.plugin() as plugin:
            more = {} if host is None else {"host": host}
            injection = plugin.before_turn(question, session_key=f"agent:{agent}:main", deadline=30, **more)
            return html.unescape(injection.text)


@pytest.fixture(autouse=True)
def _no_secret_stays_in_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_secret, "_taken", {})


def gateway(place: Path, url: str) -> Gateway:
    return Gateway(place, machine(place, url, secrets.token_hex(32)))


@pytest.fixture
def mara(plain_relayer: LocalRelayer, tmp_path: Path) -> Gateway:
    """The gateway that shares."""
    sharing = gateway(tmp_path / "mara", plain_relayer.url)
    sharing.run("remember", BOILER, "--agent", "researcher")
    return sharing


@pytest.fixture
def kim(plain_relayer: LocalRelayer, tmp_path: Path) -> Gateway:
    """The gateway that is invited."""
    other = gateway(tmp_path / "kim", plain_relayer.url)
    other.run("remember", KETTLE, "--agent", "coder")
    return other


def invitation(mara: Gateway, kim: Gateway, *more: str, namespace: str = "researcher") -> str:
    return mara.run("share", namespace, "--with-key", kim.key("coder"), *more).strip()


def shown(mara: Gateway, namespace: str = "researcher") -> str:
    return f"{namespace}@{mara.root.account[:10]}"


@pytest.mark.row("MW-51", level="e2e")
def test_an_agent_of_another_account_recalls_a_shared_namespace_until_it_is_unshared(
    mara: Gateway, kim: Gateway, tmp_path: Path
) -> None:
    assert BOILER not in kim.recalled()
    file = tmp_path / "invitation.txt"
    file.write_text(f"{invitation(mara, kim)}\n")
    assert f"coder reads {shown(mara)}" in kim.run("accept", str(file), "--agent", "coder")
    merged = kim.recalled()
    assert BOILER in merged
    assert f"said by the user of another account, shared from {shown(mara)}" in merged
    assert KETTLE in kim.recalled(LID)
    assert BOILER not in kim.recalled(agent="stranger")
    assert KETTLE not in mara.recalled(LID, agent="researcher")
    stored = kim.place / "config/memrelay/shares.json"
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    mara.run("unshare", "researcher", "--with-key", kim.key("coder"))
    with kim.plugin() as plugin:
        ended = plugin.before_turn(LID, session_key="agent:coder:main", deadline=30)
        assert KETTLE in html.unescape(ended.text)
        assert ended.status == "ok"
        reason = f"{shown(mara)} is left out: its owner has ended the share"
        assert reason in ended.detail
        assert reason in plugin.why("agent:coder:main").detail
        chat = on_loop(run_command)
        assert f"note: {reason}" in chat(plugin, "status", {"sessionKey": "agent:coder:main"})
        assert f"last turn: ok: {reason}" in chat(plugin, "why", {"sessionKey": "agent:coder:main"})
        # Other sessions are not told about it.
        assert reason not in chat(plugin, "status", {"sessionKey": "agent:stranger:main"})
        assert reason not in plugin.why("agent:stranger:main").detail
        assert reason not in str(plugin.status())
    assert reason in kim.run("why", "--agent", "coder")
    assert BOILER not in kim.recalled()
    assert BOILER in mara.recalled(agent="researcher")


def test_the_end_of_a_share_is_not_reported_as_an_outage(
    mara: Gateway, kim: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    kim.run("accept", invitation(mara, kim), "--agent", "coder")
    mara.run("unshare", "researcher", "--with-key", kim.key("coder"))
    capsys.readouterr()
    assert KETTLE in kim.recalled(LID)
    assert "memory does not work" not in capsys.readouterr().err


def test_both_sides_list_what_is_shared_and_the_invited_one_can_end_it_as_well(
    mara: Gateway, kim: Gateway
) -> None:
    text = invitation(mara, kim, "--days", "30")
    kim.run("accept", text, "--agent", "coder")
    assert f"the agent with the key {kim.key('coder')} reads researcher until 20" in mara.run("share")
    assert f"coder reads {shown(mara)} of account {mara.root.account} until 20" in kim.run("share")
    (given,) = json.loads(mara.run("share", "--json"))["invited"]
    (taken,) = json.loads(kim.run("share", "--json"))["accepted"]
    assert given["until"] == taken["until"]
    assert (given["writes"], taken["writes"], taken["namespace"]) == (False, False, shown(mara))
    kim.run("unshare", shown(mara), "--with", "coder")
    assert BOILER not in kim.recalled()
    assert "no namespaces are shared" in kim.run("share")
    assert "is not shared with coder" in kim.run("unshare", shown(mara), "--with", "coder", code=2)


def test_the_right_to_read_does_not_allow_to_write_and_the_right_to_write_does(
    mara: Gateway, kim: Gateway
) -> None:
    kim.run("accept", invitation(mara, kim), "--agent", "coder")
    text = "The key of the mill hangs behind the third beam."
    store = {"text": text, "namespace": shown(mara)}
    with kim.plugin() as plugin:
        refused = plugin.tool("memory_store", store, session_key="agent:coder:main")
        assert refused.failed
        assert "shared read-only" in refused.text
    # The relayer refuses it as well, from a program that does not check its own rights.
    item = RememberRequest(items=(MemoryItem(text=text),))
    with pytest.raises(RelayerRefused, match="401 unauthorized"):
        called(kim, accepted(kim, mara), lambda client, one: client.remember(one, item))
    kim.run("accept", invitation(mara, kim, "--write"), "--agent", "coder")
    with kim.plugin() as plugin:
        stored = plugin.tool("memory_store", store, session_key="agent:coder:main")
        assert not stored.failed, stored.text
    assert text in mara.run("list", "--agent", "researcher")
    assert text not in kim.run("list", "--agent", "coder")


def accepted(kim: Gateway, mara: Gateway) -> Identity:
    """Return the identity that the accepted invitation gives the agent coder, as any program can make it of the stored text."""
    stored = json.loads((kim.place / "config/memrelay/shares.json").read_text())["accepted"]
    keys = kim.root.agent("coder")
    return invited(keys, Invitation.open(stored[kim.root.account]["coder"][shown(mara)], keys))


def called(
    kim: Gateway, identity: Identity, work: Callable[[RelayerClient, Identity], Awaitable[object]]
) -> object:
    async def run() -> object:
        trust = TrustStore(kim.place / "trust.json")
        async with RelayerClient(kim.environment["MEMRELAY_URL"], trust=trust, clock=SystemClock()) as client:
            return await work(client, identity)

    return asyncio.run(run())


def test_an_invitation_opens_nothing_but_its_own_namespace(mara: Gateway, kim: Gateway) -> None:
    for agent in ("researcher/below", "writer"):
        mara.run("remember", KETTLE, "--agent", agent)
    kim.run("accept", invitation(mara, kim, "--write"), "--agent", "coder")
    identity = accepted(kim, mara)
    assert identity.namespace == "researcher"
    for namespace in ("researcher/below", "writer", "default"):
        # Even with the secret of the other namespace, its certificate is not enough.
        owner = mara.root.agent(namespace.partition("/")[0])
        elsewhere = dataclasses.replace(identity, namespace=namespace, owner=owner)
        with pytest.raises(RelayerRefused, match="401 unauthorized"):
            called(kim, elsewhere, lambda client, one: client.list_memories(one))
    listed = called(kim, identity, lambda client, one: client.namespaces(one))
    assert [one.name for one in listed.namespaces] == ["researcher"]


@pytest.mark.parametrize("pattern", ["researcher/*", "*", "researcher, writer"])
def test_a_pattern_is_the_name_of_one_namespace_and_never_several(
    mara: Gateway, kim: Gateway, pattern: str
) -> None:
    mara.run("remember", KETTLE, "--agent", "researcher/below")
    text = invitation(mara, kim, namespace=pattern)
    opened = Invitation.open(text, kim.root.agent("coder"))
    assert len(opened.certificate.namespaces) == 1
    assert not opened.certificate.allows("researcher", Right.READ)
    assert not opened.certificate.allows("researcher/below", Right.READ)
    assert not opened.namespace.endswith("*")


def test_only_the_invited_agents_gateway_can_open_the_text(
    mara: Gateway, kim: Gateway, tmp_path: Path
) -> None:
    text = invitation(mara, kim)
    thief = gateway(tmp_path / "thief", kim.environment["MEMRELAY_URL"])
    for other, agent in ((thief, "coder"), (kim, "stranger"), (mara, "coder")):
        refused = other.run("accept", text, "--agent", agent, code=2)
        assert "is not for the key of this agent" in refused
        assert "keys show --agent" in refused
        assert BOILER not in other.recalled(agent=agent)
    # An own key in front of the text does not open the box behind it.
    prefix, _, rest = text.partition(".")
    raw = bytes.fromhex(thief.key("coder")) + base64url.decode(rest)[32:]
    assert "was changed" in thief.run(
        "accept", f"{prefix}.{base64url.encode(raw)}", "--agent", "coder", code=2
    )


def test_a_changed_or_incomplete_text_is_refused_and_nothing_is_stored(mara: Gateway, kim: Gateway) -> None:
    text = invitation(mara, kim)
    prefix, _, rest = text.partition(".")
    raw = base64url.decode(rest)
    changed = [raw[:place] + bytes((raw[place] ^ 1,)) + raw[place + 1 :] for place in range(32, len(raw), 23)]
    for one in (*changed, raw[:-1], raw + b"x", raw[:40]):
        told = kim.run("accept", f"{prefix}.{base64url.encode(one)}", "--agent", "coder", code=2)
        assert "was changed or is incomplete" in told
        assert "share NAMESPACE --with-key KEY" in told
    for words in ("hello", "", prefix, f"{prefix}.", f"{prefix}.!!"):
        assert "not an invitation" in kim.run("accept", words, "--agent", "coder", code=2)
    assert not (kim.place / "config/memrelay/shares.json").exists()


def test_an_invitation_that_ended_is_refused_and_names_the_command_for_a_new_one(
    mara: Gateway, kim: Gateway
) -> None:
    text = issued(mara, kim, now=int(time.time()) - 3 * DAY, seconds=DAY)
    told = kim.run("accept", text, "--agent", "coder", code=2)
    assert "the invitation ended on 20" in told
    assert "memrelay-gateway share NAMESPACE --with-key KEY" in told
    assert not (kim.place / "config/memrelay/shares.json").exists()


def issued(mara: Gateway, kim: Gateway, **changes: object) -> str:
    """Return an invitation as Mara's gateway would issue it at another time or with other fields."""
    identity = mara.root.account_identity
    fields = {
        "secret": mara.root.agent("researcher").namespace_secret("researcher", FIRST_GENERATION),
        "generation": FIRST_GENERATION,
        "relayer": bytes(32),
        "writes": False,
        "now": int(time.time()),
        "seconds": DAY,
    }
    agent_key = bytes.fromhex(kim.key("coder"))
    return Invitation.issue(identity, agent_key, "researcher", **(fields | changes)).sealed(identity)


def test_an_invitation_that_ends_while_it_is_used_is_left_out_with_its_end(
    mara: Gateway, kim: Gateway
) -> None:
    kim.run("accept", invitation(mara, kim), "--agent", "coder")
    file = kim.place / "config/memrelay/shares.json"
    stored = json.loads(file.read_text())
    ended = issued(mara, kim, now=int(time.time()) - 3 * DAY, seconds=DAY)
    stored["accepted"][kim.root.account]["coder"][shown(mara)] = ended
    file.write_text(json.dumps(stored))
    assert KETTLE in kim.recalled(LID)
    assert f"{shown(mara)} is left out: the invitation ended on 20" in kim.run("why", "--agent", "coder")


def test_an_invitation_to_another_relayer_or_an_ended_one_is_not_accepted(
    mara: Gateway, kim: Gateway
) -> None:
    assert "is stored by another relayer" in kim.run("accept", issued(mara, kim), "--agent", "coder", code=1)
    text = invitation(mara, kim)
    mara.run("unshare", "researcher", "--with-key", kim.key("coder"))
    assert "its owner has ended the share" in kim.run("accept", text, "--agent", "coder", code=1)
    assert not (kim.place / "config/memrelay/shares.json").exists()


def test_a_new_invitation_ends_the_one_before(mara: Gateway, kim: Gateway) -> None:
    kim.run("accept", invitation(mara, kim, "--write"), "--agent", "coder")
    before = accepted(kim, mara)
    kim.run("accept", invitation(mara, kim), "--agent", "coder")
    assert BOILER in kim.recalled()
    with pytest.raises(RelayerRefused, match="401 unauthorized"):
        called(kim, before, lambda client, one: client.list_memories(one))
    assert len(json.loads(mara.run("share", "--json"))["invited"]) == 1


def test_rotated_keys_end_an_invitation_and_a_new_one_has_the_new_keys(mara: Gateway, kim: Gateway) -> None:
    kim.run("accept", invitation(mara, kim), "--agent", "coder")
    mara.run("keys", "rotate", "--agent", "researcher", "--reseal", "--yes")
    with kim.plugin() as plugin:
        left_out = plugin.before_turn(QUESTION, session_key="agent:coder:main", deadline=30)
    assert BOILER not in html.unescape(left_out.text)
    assert "the keys of the namespace were rotated after the invitation" in left_out.detail
    kim.run("accept", invitation(mara, kim), "--agent", "coder")
    assert BOILER in kim.recalled()


def test_a_namespace_that_stores_nothing_gets_no_new_keys_and_that_is_said(
    mara: Gateway, kim: Gateway
) -> None:
    invitation(mara, kim, namespace="shared/empty")
    ended = ("unshare", "shared/empty", "--with-key", kim.key("coder"), "--reseal")
    assert "stores nothing yet and so cannot get new keys" in mara.run(*ended, code=1)
    assert len(json.loads(mara.run("share", "--json"))["invited"]) == 1


def test_a_namespace_that_is_shown_like_one_of_another_account_does_not_replace_it(
    mara: Gateway, kim: Gateway, tmp_path: Path
) -> None:
    third = gateway(tmp_path / "third", kim.environment["MEMRELAY_URL"])
    kim.run("accept", invitation(third, kim), "--agent", "coder")
    # Ids that begin with the same digits cannot be found here, so the entry gets the other account's name.
    file = kim.place / "config/memrelay/shares.json"
    file.write_text(file.read_text().replace(shown(third), shown(mara)))
    told = kim.run("accept", invitation(mara, kim), "--agent", "coder", code=2)
    assert f"another account's namespace is shown as {shown(mara)} already" in told
    assert third.root.account in kim.run("share")


def test_two_accounts_with_the_same_agent_names_stay_apart(mara: Gateway, kim: Gateway) -> None:
    mine = "The oven in the bakery of the village is cleaned on Fridays."
    theirs = "The oven in the bakery of the village is cleaned on Mondays."
    mara.run("remember", theirs, "--agent", "coder")
    kim.run("remember", mine, "--agent", "coder")
    kim.run("accept", invitation(mara, kim, "--write", namespace="coder"), "--agent", "coder")
    question = "When is the oven in the bakery of the village cleaned?"
    with kim.plugin() as plugin:
        search = {"query": question, "minScore": 0}
        found = plugin.tool("memory_search", search, session_key="agent:coder:main").details["memories"]
        from_whom = {html.unescape(one["text"]): one.get("shared_from", "") for one in found}
        assert from_whom[mine] == ""
        assert from_whom[theirs] == shown(mara, "coder")
        alone = search | {"namespace": "coder"}
        own = plugin.tool("memory_search", alone, session_key="agent:coder:main").details["memories"]
        assert theirs not in [html.unescape(one["text"]) for one in own]
        text = "The bakery of the village has a blue door."
        store = {"text": text, "namespace": "coder"}
        assert not plugin.tool("memory_store", store, session_key="agent:coder:main").failed
    assert text in kim.run("list", "--agent", "coder")
    assert text not in mara.run("list", "--agent", "coder")
    assert mine not in mara.run("list", "--agent", "coder")


def test_what_was_said_to_one_person_stays_out_of_groups_when_another_account_shares_it(
    mara: Gateway, kim: Gateway
) -> None:
    with mara.plugin() as plugin:
        plugin.after_turn([{"role": "user", "content": KETTLE}], session_key="agent:researcher:main")
        assert plugin.flush(90)
    kim.run(
        "forget",
        json.loads(kim.run("list", "--agent", "coder", "--json"))["memories"][0]["id"],
        "--agent",
        "coder",
    )
    kim.run("accept", invitation(mara, kim), "--agent", "coder")
    assert KETTLE in kim.recalled(LID)
    with kim.plugin() as plugin:
        group = plugin.before_turn(
            LID, session_key="agent:coder:telegram:group:-100", host=HostTurn(), deadline=30
        )
        assert KETTLE not in html.unescape(group.text)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("share", "researcher", "--with-key", "0" * 64), "--with-key: not an agent's key"),
        (("share", "researcher", "--with", "coder", "--with-key", "ab" * 32), "either --with or --with-key"),
        (("share", "--with-key", "ab" * 32), "give NAMESPACE"),
        (("unshare", "researcher", "--with-key", KEY), "is not shared with"),
    ],
)
def test_what_cannot_be_shared_with_another_account_is_refused_with_the_reason(
    mara: Gateway, arguments: tuple[str, ...], sentence: str
) -> None:
    assert sentence in mara.run(*arguments, code=2)


def test_an_invitation_of_the_own_account_is_refused_with_the_command_to_use(mara: Gateway) -> None:
    text = mara.run("share", "researcher", "--with-key", mara.key("coder")).strip()
    told = mara.run("accept", text, "--agent", "coder", code=2)
    assert "memrelay-gateway share researcher --with coder" in told


def test_the_keys_of_one_agent_are_enough_to_accept(mara: Gateway, kim: Gateway, tmp_path: Path) -> None:
    keys: dict[str, str] = json.loads(kim.run("keys", "export", "--agent", "coder", "--json"))
    host = machine(tmp_path / "host", kim.environment["MEMRELAY_URL"], "")
    del host["MEMRELAY_SECRET"]
    done = run_gateway(host | keys, "accept", invitation(mara, kim))
    assert done.returncode == 0, done.stderr
    with MemoryPlugin(environ=host | keys) as plugin:
        text = plugin.before_turn(QUESTION, session_key="agent:coder:main", deadline=30).text
    assert BOILER in html.unescape(text)
