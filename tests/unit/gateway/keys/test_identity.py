from __future__ import annotations

import pytest

from gateway_plugin.errors import IdentityError
from gateway_plugin.keys.identity import NamespaceScope, identify, parse_session_key
from relayer.wire import codec as base64url
from relayer.wire import names
from relayer.wire.signing import Certificate, Right

NOW = 1_767_225_600


def of(holder, key, **more):
    return identify(holder, parse_session_key(key), **more)


@pytest.mark.row("MW-36")
def test_a_name_that_is_not_plain_gets_a_hashed_normal_form(holder):
    found = of(holder, "agent:Ünïcode Näme!:s")
    assert names.is_normal(found.agent)
    assert found.agent.startswith("_h_")
    assert names.is_normal_namespace(found.namespace)
    assert found.namespace == of(holder, "agent:ünïcode näme!:other").namespace


def test_a_scope_separates_senders_and_keeps_them_below_the_agent(holder):
    scope = NamespaceScope.AGENT_SENDER
    ana, bob = (of(holder, "agent:r:s", scope=scope, sender=sender) for sender in ("42", "43"))
    assert (ana.namespace, bob.namespace) == ("r/sender-42", "r/sender-43")
    assert ana.namespace_secret != bob.namespace_secret


def test_sender_and_workspace_of_one_name_do_not_meet(holder):
    by_sender = of(holder, "agent:r:s", scope=NamespaceScope.AGENT_SENDER, sender="x")
    by_workspace = of(holder, "agent:r:s", scope=NamespaceScope.AGENT_WORKSPACE, workspace="x")
    assert by_sender.namespace != by_workspace.namespace


@pytest.mark.parametrize("sender", [None, "", "  "])
def test_an_unknown_sender_is_no_reason_to_share(holder, sender):
    with pytest.raises(IdentityError, match="sender"):
        of(holder, "agent:r:s", scope=NamespaceScope.AGENT_SENDER, sender=sender)


def test_a_minted_certificate_grants_read_and_write_below_the_agent_for_a_day(holder):
    identity = of(holder, "agent:researcher:s")
    certificate = Certificate.verify(base64url.decode(identity.certificate_header(NOW)))
    assert certificate.account == identity.account
    assert certificate.not_after == NOW + 86_400
    assert certificate.not_before <= NOW
    assert certificate.allows("researcher", Right.WRITE)
    assert certificate.allows("researcher/sender-42", Right.READ)
    assert not certificate.allows("coder", Right.READ)
    assert not certificate.allows("researcher", Right.ADMIN)


def test_a_certificate_is_reused_until_an_hour_before_its_end(holder):
    identity = of(holder, "agent:researcher:s")
    first = identity.certificate_header(NOW)
    assert identity.certificate_header(NOW + 82_800) == first
    assert identity.certificate_header(NOW + 82_801) != first


def test_a_corrected_clock_gets_a_certificate_that_is_valid_then(holder):
    identity = of(holder, "agent:researcher:s")
    identity.certificate_header(NOW)
    earlier = Certificate.verify(base64url.decode(identity.certificate_header(NOW - 7200)))
    assert earlier.not_before <= NOW - 7200


def test_an_agent_whose_keys_were_rotated_goes_by_its_new_name(holder):
    renamed = {"researcher": "researcher-2"}
    assert of(holder, "agent:Researcher:s", renamed=renamed).namespace == "researcher-2"
    assert of(holder, "agent:coder:s", renamed=renamed).namespace == "coder"
