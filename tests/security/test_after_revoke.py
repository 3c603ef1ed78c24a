"""What an agent's keys still open after a revocation, a rotation and the end of a share, with the store and the relayer's disk.

The attacker has the agent's secret and certificate, every file of its gateway, and copies of the bucket; in most tests also
the relayer key, which lies next to the store. The keys of the account stay with the owner. A control in each test opens
with the same procedure what the attacker may open.
"""

from __future__ import annotations

import asyncio
import html
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from bucket_dumps import VECTOR, Dump, derived_secrets, dump_of_folder, secrets_in
from typed_commands import machine, run_gateway

from demo.relayer_process import RelayerProcess
from gateway_plugin import MemoryPlugin
from gateway_plugin.keys.invitations import Invitation
from relayer.wire.sealing import RootKeys

AGENTS = ("researcher", "researcher-2", "coder", "default")
NAMESPACES = (*AGENTS, "shared/mill")
OWN = "The spare key of the boathouse hangs behind the third oar."
OWN_LATER = "The spare key of the boathouse moved to the shed on Friday."
OTHER = "The boiler in the cellar of the mill is serviced by Margarethe."
OTHER_LATER = "The boiler in the cellar of the mill was replaced in November."
TOGETHER = "The sluice of the mill is closed at ten."
TOGETHER_LATER = "The sluice of the mill is closed at nine since the flood in May."


@dataclass
class Home:
    """A machine with a gateway."""

    place: Path
    environment: dict[str, str]

    def run(self, *arguments: str, code: int = 0) -> str:
        done = run_gateway(self.environment, *arguments)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr


@dataclass
class Site:
    """A relayer, the owner's gateway, and the machines of agents that hold only their own keys."""

    relayer: RelayerProcess
    owner: Home
    folder: Path

    @property
    def root(self) -> RootKeys:
        return RootKeys(bytes.fromhex(self.owner.environment["MEMRELAY_SECRET"]))

    def remember(self, agent: str, text: str) -> None:
        self.owner.run("remember", text, "--agent", agent)

    def machine_of(self, agent: str) -> Home:
        """Export an agent's keys to a machine of its own, which keeps them in a file of its configuration."""
        keys: dict[str, str] = json.loads(self.owner.run("keys", "export", "--agent", agent, "--json"))
        place = self.folder / agent
        environment = {**machine(place, self.relayer.url, ""), **keys}
        del environment["MEMRELAY_SECRET"]
        (place / "config").mkdir(parents=True)
        lines = "".join(f"{name}={value}\n" for name, value in keys.items())
        (place / "config" / "agent.env").write_text(lines)
        return Home(place, environment)

    def store_as_coder(self, namespace: str, text: str, *, refused: bool = False) -> None:
        """Let the agent coder of the owner's gateway call the tool that stores a memory in a shared namespace."""
        environment = dict(self.owner.environment)
        with MemoryPlugin(environ=environment, secret=environment["MEMRELAY_SECRET"]) as plugin:
            arguments = {"text": text, "namespace": namespace}
            done = plugin.tool("memory_store", arguments, session_key="agent:coder:main")
        assert done.failed is refused, done.text

    def dump(self) -> Dump:
        return asyncio.run(dump_of_folder(self.relayer.data))

    def opened_by(self, home: Home, dump: Dump | None = None) -> set[str]:
        """Return what every key that can be derived from a machine's files opens, with the relayer key."""
        return (dump or self.dump()).opened_by(self.root.account, self._secrets(home))

    def opened_without_the_relayer_key(self, home: Home) -> set[str]:
        """Return the objects that they open without it."""
        return self.dump().opened_without_the_relayer_key(self.root.account, self._secrets(home))

    def opened_by_the_owner(self) -> set[str]:
        """Return what the account's root secret opens, by the same procedure: everything."""
        held = derived_secrets([self.root.root], AGENTS, NAMESPACES)
        return self.dump().opened_by(self.root.account, held)

    def _secrets(self, home: Home) -> set[bytes]:
        held = secrets_in(home.place)
        assert bytes.fromhex(home.environment["MEMRELAY_AGENT_SECRET"]) in held
        return derived_secrets(held, AGENTS, NAMESPACES)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with RelayerProcess(tmp_path / "relayer", arguments=("--rate-limits", "off")) as relayer:
        place = tmp_path / "owner"
        yield Site(relayer, Home(place, machine(place, relayer.url, secrets.token_hex(32))), tmp_path)


def test_what_others_write_after_a_revocation_does_not_open(site: Site) -> None:
    thief = site.machine_of("researcher")
    thief.run("remember", OWN)
    site.remember("coder", OTHER)
    assert site.opened_by(thief) == {OWN, VECTOR}
    site.owner.run("keys", "revoke", "--agent", "researcher", "--yes")
    for agent, text in (("coder", OTHER_LATER), ("main", TOGETHER)):
        site.remember(agent, text)
    assert "keys revoked" in thief.run("list", code=1)
    thief.run("remember", OWN_LATER, code=1)
    assert site.opened_by(thief) == {OWN, VECTOR}
    assert site.opened_without_the_relayer_key(thief) == set()
    assert site.opened_by_the_owner() == {OWN, OTHER, OTHER_LATER, TOGETHER, VECTOR}


_ROTATE = ("keys", "rotate", "--agent", "researcher", "--to", "researcher-2", "--yes")
_ERASE = ("erase", "--namespace", "--agent", "researcher", "--yes")


@pytest.mark.parametrize(
    "commands",
    [(("keys", "revoke", "--agent", "researcher", "--yes"),), (_ROTATE, _ERASE)],
    ids=["revoked", "rotated and erased"],
)
def test_what_another_agent_writes_into_the_namespace_opens_until_it_is_unshared(
    site: Site, commands: tuple[tuple[str, ...], ...]
) -> None:
    thief = site.machine_of("researcher")
    thief.run("remember", OWN)
    site.owner.run("share", "researcher", "--with", "coder", "--write")
    for command in commands:
        site.owner.run(*command)
    thief.run("list", code=1)
    site.store_as_coder("researcher", OWN_LATER)
    assert site.opened_without_the_relayer_key(thief) == set()
    # docs/security.md says so below "Keys and their life".
    assert OWN_LATER in site.opened_by(thief)
    site.owner.run("unshare", "researcher", "--with", "coder")
    site.store_as_coder("researcher", OTHER_LATER, refused=True)
    assert OTHER_LATER not in site.opened_by_the_owner()


def test_a_revoked_certificate_leaves_the_agents_keys_as_they_are(site: Site) -> None:
    thief = site.machine_of("researcher")
    thief.run("remember", OWN)
    certificate = thief.environment["MEMRELAY_AGENT_CERTIFICATE"]
    site.owner.run("keys", "revoke", "--certificate", certificate, "--yes")
    thief.run("list", code=1)
    site.remember("researcher", OWN_LATER)
    assert site.opened_without_the_relayer_key(thief) == set()
    assert site.opened_by(thief) == {OWN, OWN_LATER, VECTOR}


def test_after_a_rotation_only_the_old_copy_opens_and_after_its_erasure_nothing(site: Site) -> None:
    thief = site.machine_of("researcher")
    thief.run("remember", OWN)
    site.owner.run("keys", "rotate", "--agent", "researcher", "--to", "researcher-2", "--yes")
    site.remember("researcher-2", OWN_LATER)
    before = site.dump()
    assert site.opened_by(thief) == {OWN, VECTOR}
    site.owner.run("erase", "--namespace", "--agent", "researcher", "--yes")
    assert OWN in site.owner.run("list", "--agent", "researcher-2")
    assert site.opened_by(thief) == set()
    assert site.opened_by_the_owner() == {OWN, OWN_LATER, VECTOR}
    # A copy of the bucket that was taken before still opens: nothing can change that.
    assert site.opened_by(thief, before) == {OWN, VECTOR}


def test_a_share_hands_out_no_key_so_nothing_opens_after_its_end(site: Site) -> None:
    coder, researcher = site.machine_of("coder"), site.machine_of("researcher")
    coder.run("remember", OWN)
    site.remember("researcher", OTHER)
    site.owner.run("share", "researcher", "--with", "coder")
    site.owner.run("share", "shared/mill", "--with", "coder", "--write")
    site.store_as_coder("shared/mill", TOGETHER)
    while_shared = site.opened_by(coder)
    site.owner.run("unshare", "researcher", "--with", "coder")
    site.owner.run("unshare", "shared/mill", "--with", "coder")
    site.store_as_coder("shared/mill", TOGETHER_LATER, refused=True)
    site.remember("researcher", OTHER_LATER)
    assert while_shared == site.opened_by(coder) == {OWN, VECTOR}
    assert site.opened_without_the_relayer_key(coder) == set()
    # The keys of the agent whose own namespace it is open it, and the root secret opens both.
    assert site.opened_by(researcher) == {OTHER, OTHER_LATER, VECTOR}
    assert site.opened_by_the_owner() == {OWN, OTHER, OTHER_LATER, TOGETHER, VECTOR}


def test_an_invitation_opens_what_is_written_after_its_end_and_nothing_in_a_new_namespace(site: Site) -> None:
    place = site.folder / "guest"
    guest = Home(place, machine(place, site.relayer.url, secrets.token_hex(32)))
    root = RootKeys(bytes.fromhex(guest.environment["MEMRELAY_SECRET"]))
    keys = root.agent("coder")
    key = json.loads(guest.run("keys", "show", "--agent", "coder", "--json"))["agent_key"]
    site.remember("researcher", OWN)
    site.remember("coder", OTHER)
    text = site.owner.run("share", "researcher", "--with-key", key, "--json")
    guest.run("accept", json.loads(text)["invitation"], "--agent", "coder")
    site.owner.run("unshare", "researcher", "--with-key", key)
    site.remember("researcher", OWN_LATER)
    stored = json.loads((place / "config/memrelay/shares.json").read_text())["accepted"]
    (sealed,) = stored[root.account]["coder"].values()
    held = derived_secrets([Invitation.open(sealed, keys).secret], AGENTS, NAMESPACES)
    account = site.root.account
    assert site.dump().opened_without_the_relayer_key(account, held) == set()
    # docs/security.md says so below "Keys and their life", and how to end it.
    assert site.dump().opened_by(account, held) == {OWN, OWN_LATER, VECTOR}
    # Without the agent's secret, the guest's files open nothing: the invitation in them is sealed.
    files = derived_secrets(secrets_in(place), AGENTS, NAMESPACES)
    assert site.dump().opened_by(account, files) == set()
    site.owner.run("keys", "rotate", "--agent", "researcher", "--to", "researcher-2", "--yes")
    site.owner.run("erase", "--namespace", "--agent", "researcher", "--yes")
    assert OWN in site.owner.run("list", "--agent", "researcher-2")
    assert site.dump().opened_by(account, held) == set()


@pytest.mark.parametrize("namespace", ["researcher", "shared/mill"])
def test_an_invitation_that_is_ended_with_new_keys_opens_nothing_any_more(site: Site, namespace: str) -> None:
    place = site.folder / "guest"
    guest = Home(place, machine(place, site.relayer.url, secrets.token_hex(32)))
    root = RootKeys(bytes.fromhex(guest.environment["MEMRELAY_SECRET"]))
    key = json.loads(guest.run("keys", "show", "--agent", "coder", "--json"))["agent_key"]
    site.owner.run("share", namespace, "--with", "coder", "--write")
    site.store_as_coder(namespace, OWN)
    site.remember("coder", OTHER)
    invited = ("share", namespace, "--with-key", key, "--json")
    guest.run("accept", json.loads(site.owner.run(*invited))["invitation"], "--agent", "coder")
    stored = json.loads((place / "config/memrelay/shares.json").read_text())["accepted"]
    (sealed,) = stored[root.account]["coder"].values()
    held = derived_secrets([Invitation.open(sealed, root.agent("coder")).secret], AGENTS, NAMESPACES)
    assert site.dump().opened_by(site.root.account, held) == {OWN, VECTOR}
    site.owner.run("unshare", namespace, "--with-key", key, "--reseal")
    site.store_as_coder(namespace, OWN_LATER)
    assert site.dump().opened_by(site.root.account, held) == set()
    # Another invitation has the new secret, and nothing was lost.
    guest.run("accept", json.loads(site.owner.run(*invited))["invitation"], "--agent", "coder")
    with MemoryPlugin(environ=dict(guest.environment), secret=root.root.hex()) as plugin:
        for said in (OWN, OWN_LATER):
            found = plugin.before_turn(said, session_key="agent:coder:main", deadline=30)
            assert said in html.unescape(found.text)
