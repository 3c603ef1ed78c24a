"""The lines of MEMORY.md for OpenClaw's block "Project Memory"."""

from __future__ import annotations

import pytest

from gateway_plugin.hosts.openclaw.files import project_lines

HERON = "github.com/harbour/heron"
GANNET = "github.com/harbour/gannet"
MEMORY = f"""\
# Memory

- The kettle is in the galley.
- Releases are signed with cosign. <!-- project: GitHub.com/harbour/heron --> <!-- importance: 8 -->
- The flag is for slow disks. <!-- project: {GANNET} -->

## Deploy

- Both are deployed on Mondays. <!-- project: {HERON}; {GANNET} -->
- The password is Kranich77!moor. <!-- project: {HERON} -->
"""
DIRECT = "agent:main:telegram:direct:777"
OWNERS = frozenset({"telegram:777"})


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "MEMORY.md").write_text(MEMORY)
    return tmp_path


def told(workspace, *projects, sessions=(DIRECT, "agent:main:main"), owners=OWNERS):
    return [
        (line["startLine"], line["snippet"], line["projectKey"])
        for line in project_lines(workspace, frozenset(projects), sessions, owners)
    ]


@pytest.mark.row("OC-22")
def test_lines_of_the_projects_of_a_session_are_told_with_their_place_and_weight(workspace):
    signed = (4, "Releases are signed with cosign.", HERON)
    assert told(workspace, HERON)[0] == signed
    assert not any("disks" in text or "Mondays" in text for _, text, _ in told(workspace, HERON))
    both = told(workspace, HERON, GANNET)
    assert both[:3] == [
        signed,
        (5, "The flag is for slow disks.", GANNET),
        (9, "Deploy: Both are deployed on Mondays.", f"{GANNET};{HERON}"),
    ]
    assert not any("Kranich" in text for _, text, _ in both)
    assert project_lines(workspace, frozenset({HERON}), [DIRECT], OWNERS)[0]["importance"] == 8


@pytest.mark.row("OC-22")
@pytest.mark.parametrize(
    "sessions",
    [
        (),
        ("",),
        (None,),
        (DIRECT, "agent:main:telegram:group:-7"),
        ("agent:main:discord:channel:7",),
        ("cron:daily",),
    ],
)
def test_nothing_is_told_where_the_prompt_may_be_that_of_a_group(workspace, sessions):
    assert told(workspace, HERON, sessions=sessions) == []


@pytest.mark.row("OC-22")
def test_other_peoples_direct_chats_are_not_told_what_memory_md_says(workspace):
    for key in ("agent:main:telegram:direct:778", "agent:main:discord:direct:777", "agent:main:direct:alice"):
        assert told(workspace, HERON, sessions=(key,)) == []
        assert told(workspace, HERON, sessions=(DIRECT, key)) == []
    assert told(workspace, HERON, sessions=(DIRECT,), owners=frozenset()) == []
    assert told(workspace, HERON, sessions=("agent:main:direct:alice",), owners=frozenset({"peer:alice"}))


def test_a_workspace_without_a_readable_file_has_no_lines(tmp_path):
    assert told(tmp_path, HERON) == []
    (tmp_path / "MEMORY.md").write_bytes(b"\xff")
    assert told(tmp_path, HERON) == []
