"""Where the host's agents have their files, and what of them a tool may read."""

from __future__ import annotations

import os

import pytest

from gateway_plugin.hosts.openclaw.config import HostConfig
from gateway_plugin.hosts.openclaw.files import places_of, project_lines
from gateway_plugin.hosts.openclaw.migration import SourcePlugin, plan
from gateway_plugin.settings.model import CaptureSettings


def config(tmp_path, **whole):
    return HostConfig(tmp_path / "openclaw.json", whole)


@pytest.fixture
def workspace(tmp_path):
    place = tmp_path / "ws"
    (place / "memory").mkdir(parents=True)
    (place / "MEMORY.md").write_text("- private\n")
    (place / "memory" / "open.md").write_text("- open\n")
    (place / "memory" / "2026-04-01.md").write_text("- daily\n")
    (place / "secret.txt").write_text("secret")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.md").write_text("- elsewhere\n")
    return place


@pytest.fixture
def main(tmp_path, workspace):
    entries = {"main": {"workspace": str(workspace)}}
    (found,) = places_of(config(tmp_path, agents={"entries": entries}), {"HOME": str(tmp_path)})
    return found


def test_a_workspace_is_found_as_the_host_finds_it(tmp_path):
    environ = {"HOME": str(tmp_path), "OPENCLAW_STATE_DIR": str(tmp_path / "state"), "ROOT": "/srv"}
    named = {"entries": {"main": {}, "ops": {"workspace": "${ROOT}/ops"}, "far": {"workspace": "~/far"}}}
    default = config(tmp_path, agents=named | {"defaults": {"workspace": "~/ws"}})
    assert [str(one.workspace) for one in places_of(default, environ)] == [
        f"{tmp_path}/ws", "/srv/ops", f"{tmp_path}/far",
    ]  # fmt: skip
    none = places_of(config(tmp_path, agents={"entries": {"main": {}, "ops": {}}}), environ)
    assert [str(one.workspace) for one in none] == [
        f"{tmp_path}/.openclaw/workspace",
        f"{tmp_path}/state/workspace-ops",
    ]
    # A profile of the host has a folder of its own.
    (dev,) = places_of(config(tmp_path), {"HOME": str(tmp_path), "OPENCLAW_PROFILE": "dev"})
    assert str(dev.workspace) == f"{tmp_path}/.openclaw-dev/workspace"


@pytest.mark.parametrize(
    ("whole", "remembers"),
    [
        ({}, True),
        ({"session": {"dmScope": "per-peer"}}, False),
        (
            {"session": {"dmScope": "per-peer"}, "memory": {"search": {"sources": ["memory", "sessions"]}}},
            True,
        ),
        ({"memory": {"search": {"rememberAcrossConversations": False}}}, False),
        ({"agents": {"defaults": {"memorySearch": {"sources": ["sessions"]}}}}, True),
    ],
)
def test_sessions_are_memory_where_the_hosts_own_memory_covers_them(tmp_path, whole, remembers):
    (found,) = places_of(config(tmp_path, **whole), {"HOME": str(tmp_path)})
    assert found.sessions is remembers


def test_what_is_moved_from_another_plugin_lies_where_the_gateway_looks(tmp_path, workspace):
    """Also as hosts before 2026.9 write it, and with variables."""
    environ = {"HOME": str(tmp_path), "ROOT": str(tmp_path)}
    search = {"memorySearch": {"extraPaths": ["${ROOT}/other", " ~/other/notes.md"]}}
    ours = config(tmp_path, agents={"list": [{"id": "main", "workspace": "${ROOT}/ws", **search}]})
    (found,) = places_of(ours, environ)
    installed = {"plugins": {"entries": {"memory-core-plus": {}}}}
    ours = HostConfig(ours.path, {**ours.whole, **installed})
    moved = plan(
        ours, SourcePlugin.MEMORY_CORE_PLUS, environ, command="memrelay-gateway", url=None, access=True
    )
    assert {root.path for root in found.roots} == {place.path for place in moved.places}
    assert {place.path for place in moved.places} == {
        workspace, tmp_path / "other", tmp_path / "other" / "notes.md",
    }  # fmt: skip


@pytest.mark.parametrize("spelling", ["memory", "memorySearch"])
def test_extra_paths_of_the_host_and_of_the_agent_are_joined(tmp_path, workspace, spelling):
    def search(path):
        return (
            {"memorySearch": {"paths": [path]}}
            if spelling == "memorySearch"
            else {"memory": {"search": {"extraPaths": [{"path": path, "pattern": "**/*.md"}]}}}
        )

    whole = {
        "agents": {"entries": {"main": {"workspace": str(workspace), **search("../other")}}},
        **search("/srv/x"),
    }
    (found,) = places_of(config(tmp_path, **whole), {"HOME": str(tmp_path)}, more=("~/mine",))
    assert {str(root.path) for root in found.roots} == {
        str(workspace), str(tmp_path / "other"), "/srv/x", str(tmp_path / "mine"),
    }  # fmt: skip
    assert found.read("other/notes.md", private=True) == "- elsewhere\n"
    assert found.read(str(tmp_path / "other" / "notes.md"), private=False) == "- elsewhere\n"


def test_an_agent_whose_memory_search_is_switched_off_has_no_places(tmp_path, workspace):
    entries = {
        "main": {"workspace": str(workspace), "memory": {"search": {"enabled": False}}},
        "ops": {"workspace": str(workspace)},
    }
    found = places_of(config(tmp_path, agents={"entries": entries}), {"HOME": str(tmp_path)})
    assert [one.agent for one in found] == ["ops"]


def test_only_what_is_indexed_is_read_and_nothing_leads_out(tmp_path, workspace, main):
    assert main.read("MEMORY.md", private=True) == "- private\n"
    assert main.read("./memory/open.md", private=True) == "- open\n"
    (workspace / "memory" / "link.md").symlink_to(tmp_path / "other" / "notes.md")
    (workspace / "memory" / "folder").symlink_to(tmp_path / "other")
    os.mkfifo(workspace / "memory" / "pipe.md")
    for path in (
        "secret.txt", "../other/notes.md", "memory/../../other/notes.md", "memory/link.md", "memory/folder/notes.md",
        "memory/pipe.md", "/etc/passwd", str(tmp_path / "other" / "notes.md"), "", ".", "memory", "memory/\0.md",
    ):  # fmt: skip
        assert main.read(path, private=True) is None, path


def test_what_is_private_is_not_read_for_a_group(main):
    from dataclasses import replace

    assert main.read("MEMORY.md", private=False) is None
    assert main.read("memory/open.md", private=False) == "- open\n"
    assert main.read("memory/2026-04-01.md", private=False) == "- daily\n"
    mirrored = replace(main, mirrors=True)
    assert mirrored.read("memory/2026-04-01.md", private=False) is None
    assert mirrored.read("memory/2026-04-01.md", private=True) == "- daily\n"


def test_what_an_earlier_version_of_the_host_wrote_into_the_workspace_is_not_stored(tmp_path, workspace):
    """The host was updated since, so its templates have other lines now."""
    (workspace / "USER.md").write_text(
        "# USER.md - About Your Human\n\n_Learn about the person you're helping. Update this as you go._\n\n"
        "- **Name:** Ana\n- **Pronouns:** _(optional)_\n- **Notes:**\n\n## Context\n\n_(Build this over time.)_\n\n---\n\n"
        "- The ferry leaves at noon.\n"
    )
    (tmp_path / "templates").mkdir()
    entries = {"main": {"workspace": str(workspace)}}
    environ = {"HOME": str(tmp_path), "MEMRELAY_OPENCLAW_TEMPLATES": str(tmp_path / "templates")}
    (found,) = places_of(config(tmp_path, agents={"entries": entries}), environ)
    read = found.roots[0].read(workspace / "USER.md", CaptureSettings())
    assert [item.text for item in read] == ["**Name:** Ana", "Context: The ferry leaves at noon."]


# The lines of MEMORY.md for OpenClaw's block "Project Memory".
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
def private_workspace(tmp_path):
    (tmp_path / "MEMORY.md").write_text(MEMORY)
    return tmp_path


def told(private_workspace, *projects, sessions=(DIRECT, "agent:main:main"), owners=OWNERS):
    return [
        (line["startLine"], line["snippet"], line["projectKey"])
        for line in project_lines(private_workspace, frozenset(projects), sessions, owners)
    ]


@pytest.mark.row("OC-22")
def test_lines_of_the_projects_of_a_session_are_told_with_their_place_and_weight(private_workspace):
    signed = (4, "Releases are signed with cosign.", HERON)
    assert told(private_workspace, HERON)[0] == signed
    assert not any("disks" in text or "Mondays" in text for _, text, _ in told(private_workspace, HERON))
    both = told(private_workspace, HERON, GANNET)
    assert both[:3] == [
        signed,
        (5, "The flag is for slow disks.", GANNET),
        (9, "Deploy: Both are deployed on Mondays.", f"{GANNET};{HERON}"),
    ]
    assert not any("Kranich" in text for _, text, _ in both)
    assert project_lines(private_workspace, frozenset({HERON}), [DIRECT], OWNERS)[0]["importance"] == 8


@pytest.mark.row("OC-22")
@pytest.mark.parametrize(
    "sessions",
    [
        (), ("",), (None,), (DIRECT, "agent:main:telegram:group:-7"), ("agent:main:discord:channel:7",),
        ("cron:daily",),
    ],
)  # fmt: skip
def test_nothing_is_told_where_the_prompt_may_be_that_of_a_group(private_workspace, sessions):
    assert told(private_workspace, HERON, sessions=sessions) == []


@pytest.mark.row("OC-22")
def test_other_peoples_direct_chats_are_not_told_what_memory_md_says(private_workspace):
    for key in ("agent:main:telegram:direct:778", "agent:main:discord:direct:777", "agent:main:direct:alice"):
        assert told(private_workspace, HERON, sessions=(key,)) == []
        assert told(private_workspace, HERON, sessions=(DIRECT, key)) == []
    assert told(private_workspace, HERON, sessions=(DIRECT,), owners=frozenset()) == []
    assert told(
        private_workspace, HERON, sessions=("agent:main:direct:alice",), owners=frozenset({"peer:alice"})
    )


def test_a_workspace_without_a_readable_file_has_no_lines(tmp_path):
    assert told(tmp_path, HERON) == []
    (tmp_path / "MEMORY.md").write_bytes(b"\xff")
    assert told(tmp_path, HERON) == []
