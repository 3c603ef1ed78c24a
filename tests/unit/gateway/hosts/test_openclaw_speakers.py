"""What of OpenClaw's events becomes a turn: the name of who wrote in a group, which the host tells next to the text."""

from __future__ import annotations

import pytest

from gateway_plugin.hosts.openclaw.turns import with_speaker


@pytest.mark.parametrize(
    ("key", "name", "named"),
    [
        ("agent:main:telegram:group:-1", "Kim", True),
        ("agent:main:slack:channel:C1:thread:7", "Kim", True),
        ("agent:main:telegram:group:-1", None, False),
        ("agent:main:telegram:group:-1", " ", False),
        ("agent:main:telegram:direct:222", "Kim", False),
        ("agent:main:main", "Kim", False),
        (None, "Kim", False),
    ],
)
def test_the_name_that_the_host_tells_is_that_of_the_last_message_in_a_group(key, name, named):
    said = [{"role": "user", "content": one} for one in ("Hi.", "I sail.")]
    answer = {"role": "assistant", "content": "Nice."}
    told = with_speaker([*said, answer], {"sessionKey": key, "senderName": name})
    assert told == (said[0], said[1] | ({"name": name} if named else {}), answer)
    assert with_speaker([answer], {"sessionKey": key, "senderName": name}) == (answer,)
