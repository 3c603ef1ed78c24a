from __future__ import annotations

import base64
import os
import stat
import subprocess
import sys

import pytest

from gateway_plugin.errors import IdentityError
from gateway_plugin.keys import gateway_secret
from gateway_plugin.keys.gateway_secret import load_keys
from gateway_plugin.keys.identity import AgentHolder, mint
from gateway_plugin.keys.private_files import create_private
from relayer.wire import codec as base64url
from relayer.wire.sealing import RootKeys

ROOT = bytes(range(32))
ACCOUNT = RootKeys(ROOT).account
pytestmark = pytest.mark.usefixtures("nothing_taken")


@pytest.fixture
def said():
    return []


def load(environ, said, given=None):
    return load_keys(environ, given=given, notify=said.append)


@pytest.mark.parametrize(
    "text", [ROOT.hex(), ROOT.hex().upper(), base64.b64encode(ROOT).decode(), base64url.encode(ROOT)]
)
def test_hex_and_both_base64_alphabets_are_the_same_secret(environ, said, text):
    assert load({**environ, "MEMRELAY_SECRET": f" {text}\n"}, said).account == ACCOUNT


def test_what_was_read_is_taken_out_of_the_environment_and_kept_for_the_next_plugin(environ, said):
    environ["MEMRELAY_SECRET"] = ROOT.hex()
    first = load(environ, said)
    assert "MEMRELAY_SECRET" not in environ
    assert load(environ, said).account == first.account


def test_the_host_configuration_wins_over_the_environment(environ, said):
    environ["MEMRELAY_SECRET"] = "ff" * 32
    assert load(environ, said, given=ROOT.hex()).account == ACCOUNT
    assert "MEMRELAY_SECRET" not in environ


@pytest.mark.parametrize("bad", ["deadbeef", "zz" * 32, "ü" * 64, "00" * 33])
def test_a_malformed_secret_is_named_by_its_source_and_never_shown(environ, said, bad):
    with pytest.raises(IdentityError, match="MEMRELAY_SECRET") as raised:
        load({**environ, "MEMRELAY_SECRET": bad}, said)
    assert bad not in str(raised.value)


def test_a_first_start_makes_a_private_secret_and_says_so_once(environ, said):
    first = load(environ, said)
    path = gateway_secret.secret_path(environ)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert load(environ, said).account == first.account
    made, before = said
    assert "memrelay-gateway keys recovery" in made
    # Whoever had memories elsewhere must not take silence for their loss.
    assert "memrelay-gateway keys recover --replace" in before
    assert path.read_text().strip() not in made + before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_secret_that_others_may_read_is_refused_with_the_command_that_helps(environ, said, mode):
    load(environ, said)
    path = gateway_secret.secret_path(environ)
    path.chmod(mode)
    with pytest.raises(IdentityError, match=f"chmod 600 {path}"):
        load(environ, said)


def test_a_file_that_is_named_and_missing_is_never_made(environ, said, tmp_path):
    environ["MEMRELAY_SECRET_FILE"] = str(tmp_path / "none")
    with pytest.raises(IdentityError, match="does not exist"):
        load(environ, said)
    assert not (tmp_path / "none").exists()


def test_an_existing_file_is_never_overwritten(tmp_path):
    path = tmp_path / "secret"
    assert create_private(path, b"first")
    assert not create_private(path, b"second")
    assert path.read_bytes() == b"first"
    assert [found.name for found in tmp_path.iterdir()] == ["secret"]


def test_processes_that_start_together_agree_on_one_secret(environ):
    code = (
        "import os; from gateway_plugin.keys.gateway_secret import load_keys;"
        "print(load_keys(os.environ, notify=lambda _: None).account)"
    )
    env = {**os.environ, **environ}
    started = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    accounts = {process.communicate(timeout=60)[0] for process in started}
    assert len(accounts) == 1
    assert accounts.pop().startswith("0x")


def agent_environment(now=1_767_225_600):
    root = RootKeys(ROOT)
    certificate = mint(root, "researcher", now=now).issue(root.account_identity)
    return {
        "MEMRELAY_AGENT_SECRET": root.agent("researcher").secret.hex(),
        "MEMRELAY_AGENT_CERTIFICATE": base64url.encode(certificate),
    }


def test_a_host_may_hold_one_agent_only(environ, said):
    holder = load({**environ, **agent_environment()}, said)
    assert isinstance(holder, AgentHolder)
    assert (holder.account, holder.only_agent) == (ACCOUNT, "researcher")
    with pytest.raises(IdentityError, match="researcher"):
        holder.agent("coder")


def test_secret_and_certificate_of_different_agents_are_refused(environ, said):
    given = agent_environment()
    given["MEMRELAY_AGENT_SECRET"] = RootKeys(ROOT).agent("coder").secret.hex()
    with pytest.raises(IdentityError, match="different agents"):
        load({**environ, **given}, said)


def test_a_certificate_that_ran_out_is_said_before_anything_is_sent(environ, said):
    holder = load({**environ, **agent_environment(now=1_767_225_600)}, said)
    with pytest.raises(IdentityError, match="has expired"):
        holder.credential("researcher").header(1_767_225_600 + 86_401)


def test_no_repr_shows_a_secret(environ, said):
    holder = load({**environ, "MEMRELAY_SECRET": ROOT.hex()}, said)
    shown = repr((holder, vars(holder), holder.agent("a")))
    assert ROOT.hex() not in shown
    assert repr(ROOT) not in shown
    assert repr(holder.agent("a").secret) not in shown
