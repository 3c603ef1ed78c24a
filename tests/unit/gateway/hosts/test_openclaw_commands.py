"""Which chat commands of the OpenClaw host are the owner's, and by what the owner is known."""

from __future__ import annotations

import asyncio

import pytest

from gateway_plugin.hosts.openclaw.commands import is_owner, list_replaced, memory_command, run_command

SETTINGS = {"owners": ["telegram:777", "discord:*"]}
DIRECT = {"sessionKey": "agent:main:telegram:direct:777", "channel": "telegram", "senderId": "777"}
GROUP = DIRECT | {"sessionKey": "agent:main:telegram:group:-1001"}
ADMIN = {"gatewayClientScopes": ["operator.admin"]}


@pytest.fixture
def owned(make, wire):
    return make(settings=SETTINGS | {"url": wire.url})


@pytest.mark.parametrize(
    ("context", "is_the_owner"),
    [
        ({"channel": "telegram", "senderId": "777"}, True),
        ({"channel": "Telegram", "senderId": " 777 "}, True),
        ({"channel": "discord", "senderId": "777"}, False),
        ({"channel": "telegram", "senderId": "7"}, False),
        ({"channel": "telegram", "senderId": ""}, False),
        ({"channel": "telegram", "senderId": 777}, False),
        ({"channel": "telegram"}, False),
        ({"channel": "", "senderId": "777"}, False),
        ({"senderId": "777"}, False),
        ({"senderId": "telegram:777"}, False),
        ({"channel": "discord", "senderId": "*"}, False),
        ({"channel": "discord", "senderId": "5"}, False),
        ({}, False),
        # What the host says itself goes first.
        ({"senderIsOwner": True}, True),
        ({"channel": "telegram", "senderId": "777", "senderIsOwner": False}, False),
        ({"channel": "telegram", "senderId": "777", "gatewayClientScopes": ["operator.write"]}, False),
        ({"channel": "telegram", "senderId": "777", "gatewayClientScopes": "operator.admin"}, False),
        (ADMIN, True),
    ],
)  # fmt: skip
def test_the_owner_is_known_by_what_the_host_says_or_by_an_id_of_the_same_channel(
    owned, context, is_the_owner
):
    assert is_owner(owned, context) is is_the_owner


def test_without_an_owner_in_the_settings_nobody_is_the_owner(plugin):
    assert not is_owner(plugin, DIRECT)


def typed(plugin, arguments, context):
    if arguments == "replaced":
        return asyncio.run(list_replaced(plugin, context))
    return asyncio.run(memory_command(plugin, arguments, context)) or run_command(plugin, arguments, context)


@pytest.mark.parametrize("arguments", ["list 5", "search shed", "remember Boats need paint.", "replaced"])
def test_what_shows_or_keeps_memories_is_refused_to_others_and_in_groups(owned, arguments):
    name = f"/memory {arguments.split()[0]}"
    other = DIRECT | {"sessionKey": "agent:main:telegram:direct:222", "senderId": "222"}
    assert typed(owned, arguments, other).startswith(f"{name} is for the owner of this gateway.")
    assert typed(owned, arguments, GROUP).startswith(f"{name} works in direct chats only")


@pytest.mark.parametrize("key", ["telegram:group:-1001", "slack:channel:c1", "telegram:group:-1001:topic:7"])
def test_in_a_group_the_owner_alone_switches_memory(owned, key):
    group = GROUP | {"sessionKey": f"agent:main:{key}"}
    for word in ("off", "on"):
        refused = typed(owned, word, group | {"senderId": "666"})
        assert refused.startswith(f"/memory {word} in a group is for the owner of this gateway.")
        assert typed(owned, "status", group).startswith("Memory: on for this session")
    assert typed(owned, "off", group) == "Memory is off for this session."
    assert "is for the owner" in typed(owned, "on", group | {"senderId": "666"})
    assert typed(owned, "status", group).startswith("Memory: off for this session")
    assert typed(owned, "on", {"sessionKey": group["sessionKey"]} | ADMIN) == "Memory is on for this session."


def test_in_a_direct_chat_everybody_switches_memory_for_themselves_and_the_owner_for_all(owned):
    other = DIRECT | {"sessionKey": "agent:main:telegram:direct:222", "senderId": "222"}
    assert typed(owned, "off", other) == "Memory is off for this session."
    assert typed(owned, "off --global", other).startswith("/memory off --global needs the gateway's owner")
    assert typed(owned, "off --global", DIRECT) == "Memory is off for every session of this gateway."
