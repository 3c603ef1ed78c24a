"""Over all session keys, names and settings: two agents never share a namespace or a key, and one agent always finds its own."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway_plugin.commands.run import agent_identity
from gateway_plugin.errors import IdentityError, SettingsError
from gateway_plugin.keys.identity import (
    AgentHolder,
    Identity,
    RootHolder,
    identities_before_split,
    named,
    parse_session_key,
    typed,
)
from gateway_plugin.outbox.queue import Outbox
from gateway_plugin.sessions import SessionBook
from gateway_plugin.settings.model import PluginSettings, load_settings
from gateway_plugin.turn.gates import HostTurn
from relayer.wire import names
from relayer.wire.sealing import RootKeys

HOLDER = RootHolder(RootKeys(bytes(range(32))))
HASHED_DEFAULT = names.hashed("default")
# What names are made of that could be taken for one another, and what namespaces are made of.
WIDE = {ord("a") + at: 0xFF41 + at for at in range(26)}
TELLING = st.sampled_from(
    [
        *("main", "MAIN", "main".translate(WIDE), "default", "Default", "default".translate(WIDE)),
        *("research", "Research", "Foo Bar", "foo-bar", "foo bar", "_h_default", "-", "_"),
        *("namespace-research", "default/namespace-research", "default/x", "research/sender-b", "sender-b"),
        *("workspace-b", "memrelay-owner", "memrelay-canary", HASHED_DEFAULT, names.normalise("foo bar")),
    ]
)
ODD = st.text(
    st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"], exclude_characters=":"), max_size=12
)
NAMES = TELLING | ODD
SETTINGS = st.fixed_dictionaries(
    {"scope": st.sampled_from(["agent", "agent+sender", "agent+workspace"])},
    optional={"default": NAMES, "profile": NAMES, "renamed": st.dictionaries(NAMES, NAMES, max_size=2)},
)
OTHERS = st.sampled_from(["b", "B", "a/sender-b", "sender-b", "research", "default"])


def folded(name: str | None) -> str:
    """What is one agent to a host: names are compared without case, width and the spaces around them; nobody is ``main``."""
    once = unicodedata.normalize("NFKC", name if name is not None else "main").strip().lower()
    return unicodedata.normalize("NFKC", once)


def settings_of(tree: dict[str, object]) -> PluginSettings:
    try:
        return load_settings({"namespace": tree}, {})
    except SettingsError:
        assume(False)
        raise


def of_turn(settings: PluginSettings, key: str, host: HostTurn, agent: str | None = None) -> Identity | None:
    try:
        return SessionBook(HOLDER, settings, Outbox.in_memory(), agent=agent).identity(
            parse_session_key(key), host
        )
    except IdentityError:
        return None


@pytest.mark.row("MW-05")
@pytest.mark.row("MW-36")
@given(
    agents=st.lists(NAMES | st.none(), min_size=2, max_size=6), tree=SETTINGS, sender=OTHERS, workspace=OTHERS
)
def test_two_agents_share_neither_a_namespace_nor_a_secret(agents, tree, sender, workspace):
    settings, host = settings_of(tree), HostTurn(sender=sender, workspace=workspace)
    found = [(one, of_turn(settings, "main:s" if one is None else f"agent:{one}:s", host)) for one in agents]
    for (one, ones), (other, others) in combinations(found, 2):
        if ones is None or others is None or folded(one) == folded(other):
            continue
        assert ones.agent != others.agent, (one, other)
        assert ones.namespace != others.namespace, (one, other)
        assert ones.namespace_secret != others.namespace_secret
        assert not others.namespace.startswith(f"{ones.agent}/"), (one, other)


@given(one=NAMES, other=NAMES | st.none(), before=SETTINGS, after=SETTINGS, sender=OTHERS)
def test_no_change_of_the_default_namespace_or_the_scope_makes_two_agents_meet(
    one, other, before, after, sender
):
    assume(folded(one) != folded(other))
    host = HostTurn(sender=sender, workspace=sender)
    for tree in (before, after):
        tree.pop("renamed", None)
    found = of_turn(settings_of(before), f"agent:{one}:s", host)
    others = of_turn(settings_of(after), "" if other is None else f"agent:{other}:s", host)
    if found is not None and others is not None:
        assert found.agent != others.agent
        assert found.namespace != others.namespace
        assert found.namespace_secret != others.namespace_secret


@given(agent=NAMES, tree=SETTINGS)
def test_an_agent_is_the_same_by_session_key_argument_setting_host_and_command(agent, tree):
    tree["scope"] = "agent"
    settings = settings_of(tree)
    by_key = of_turn(settings, f"agent:{agent}:main", HostTurn())
    assume(by_key is not None)
    assert by_key == of_turn(settings, "", HostTurn(), agent)
    assert by_key == of_turn(settings, "telegram:direct:7", HostTurn(agent=agent))
    assert by_key == of_turn(settings.model_copy(update={"agent": agent}), "", HostTurn())
    assert by_key == agent_identity(settings, HOLDER, agent)
    assert by_key == agent_identity(settings, HOLDER, agent, shown=True)
    if folded(agent) == "main":
        assert by_key == of_turn(settings, "main:one", HostTurn()) == agent_identity(settings, HOLDER, None)
    elif not tree.get("renamed"):
        # As commands show it, too.
        assert agent_identity(settings, HOLDER, by_key.agent, shown=True) == by_key


@given(agent=NAMES, other=NAMES)
def test_a_key_that_names_the_default_agent_is_nobody_elses(agent, other):
    assume(folded(agent) != "main")
    settings = PluginSettings()
    told = of_turn(settings, "agent:main:s", HostTurn(), agent)
    assert told == of_turn(settings, "", HostTurn())
    by_name = of_turn(settings, f"agent:{other}:s", HostTurn(), agent)
    assert by_name is None or (by_name == told) == (folded(other) == "main")


@pytest.mark.parametrize("name", [HASHED_DEFAULT, HASHED_DEFAULT.upper(), names.normalise("foo bar")])
def test_a_host_s_agent_cannot_be_called_as_another_is_kept(name):
    with pytest.raises(IdentityError, match="represents another agent"):
        named(name)


def test_a_hashed_name_is_taken_from_a_person_as_it_was_shown():
    assert named(HASHED_DEFAULT, shown=True) == named("default") == HASHED_DEFAULT
    with pytest.raises(IdentityError):
        named(HASHED_DEFAULT.upper(), shown=True)


@pytest.mark.parametrize(
    ("namespace", "shown"),
    [("default", "main"), ("default/sender-a", "main/sender-a"), ("coder/default", "coder/default")],
)
def test_a_namespace_is_typed_with_the_default_agent_s_own_name(namespace, shown):
    assert typed(namespace) == shown


def test_memories_of_the_default_agent_stay_where_they_were_and_a_default_namespace_lies_below():
    assert of_turn(PluginSettings(), "agent:main:main", HostTurn()).namespace == "default"
    home = load_settings({"defaultNamespace": "Home"}, {})
    assert of_turn(home, "agent:main:main", HostTurn()).namespace == "default/namespace-home"
    assert of_turn(home, "agent:home:main", HostTurn()).namespace == "home"
    by_variable = load_settings({}, {"MEMRELAY_DEFAULT_NAMESPACE": "home"})
    assert by_variable.namespace.default == "home"
    assert (
        load_settings({"defaultNamespace": "a"}, {"MEMRELAY_DEFAULT_NAMESPACE": "b"}).namespace.default == "a"
    )


def test_a_profile_lies_below_every_agent_and_beside_a_default_namespace():
    dev = load_settings({"namespace": {"profile": "Dev"}}, {})
    assert of_turn(dev, "agent:main:main", HostTurn()).namespace == "default/profile-dev"
    assert of_turn(dev, "agent:coder:main", HostTurn()).namespace == "coder/profile-dev"
    assert agent_identity(dev, HOLDER, "coder").namespace == "coder/profile-dev"
    both = load_settings(
        {"defaultNamespace": "dev", "namespace.scope": "agent+sender"}, {"MEMRELAY_PROFILE": "dev"}
    )
    identity = of_turn(both, "agent:main:main", HostTurn(sender="ana"))
    assert identity.namespace == "default/namespace-dev/profile-dev/sender-ana"
    assert "default" in [one.namespace for one in identities_before_split(identity)]


@pytest.mark.parametrize("renamed", [{"a": "c", "b": "c"}, {"a": "main"}, {"a": "memrelay-owner"}, {"a": ""}])
def test_settings_that_give_one_name_to_two_agents_are_refused(renamed):
    with pytest.raises(SettingsError, match=r"namespace\.renamed"):
        load_settings({"namespace": {"renamed": renamed}}, {})


@pytest.mark.parametrize("old", ["main", "default", "Default"])
def test_the_default_agent_is_renamed_by_its_own_name_or_the_one_of_its_keys(old):
    settings = load_settings({"namespace": {"renamed": {old: "spare"}}}, {})
    assert of_turn(settings, "agent:main:main", HostTurn()).agent == "spare"
    assert of_turn(settings, "agent:default:main", HostTurn()).agent == HASHED_DEFAULT
    assert of_turn(settings, "agent:spare:main", HostTurn()) is None


def test_where_one_agent_s_keys_are_held_the_default_agent_is_that_one_and_no_other_speaks():
    identity = of_turn(PluginSettings(), "agent:coder:s", HostTurn())
    holder = AgentHolder.parse(identity.keys.secret, identity.certificate_header(1_767_225_600))
    alone = SessionBook(holder, load_settings({"defaultNamespace": "research"}, {}), Outbox.in_memory())
    for key in ("", "main:s", "agent:main:s", "agent:coder:s"):
        assert (
            replace(alone.identity(parse_session_key(key), HostTurn()), credential=identity.credential)
            == identity
        )
    with pytest.raises(IdentityError, match="keys of agent 'coder' only"):
        alone.identity(parse_session_key("agent:default:s"), HostTurn())
