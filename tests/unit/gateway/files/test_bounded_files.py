"""What lies below a folder is read without leaving it, whatever is put there between a look and an opening."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path, PurePosixPath

import pytest

from gateway_plugin.files import bounded
from gateway_plugin.files.bounded import NotRead, files_below, opened_below, read_below
from gateway_plugin.hosts.openclaw.tools import AgentSessions
from gateway_plugin.tools.arguments import ToolError

SECRET = b"of somebody else"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "folder"
    (place / "deep").mkdir(parents=True)
    (place / "deep" / "a.md").write_bytes(b"mine")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.md").write_bytes(SECRET)
    return place


def everything(folder, **bounds):
    found = files_below(folder, lambda below: below.suffix == ".md", **bounds)
    return [path.relative_to(folder).as_posix() for path, _ in found.files], [
        str(one) for one in found.left_out
    ]


def test_what_is_a_file_when_it_is_looked_at_and_a_link_when_it_is_opened_is_not_read(folder, monkeypatch):
    look = os.stat
    swapped = []

    def stat_then_swap(name, *, dir_fd=None, follow_symlinks=True):
        status = look(name, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        if name == "a.md" and not swapped:
            swapped.append(name)
            (folder / "deep" / "a.md").unlink()
            (folder / "deep" / "a.md").symlink_to(folder.parent / "outside" / "a.md")
        return status

    monkeypatch.setattr(bounded.os, "stat", stat_then_swap)
    with pytest.raises(NotRead, match="it is a symbolic link"):
        read_below(folder, "deep/a.md")
    assert swapped


def test_what_is_a_file_when_it_is_looked_at_and_a_pipe_when_it_is_opened_is_not_waited_for(
    folder, monkeypatch
):
    look = os.stat

    def stat_then_swap(name, *, dir_fd=None, follow_symlinks=True):
        status = look(name, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        (folder / "deep" / "a.md").unlink()
        os.mkfifo(folder / "deep" / "a.md")
        return status

    monkeypatch.setattr(bounded.os, "stat", stat_then_swap)
    with pytest.raises(NotRead, match="not a regular file"):
        read_below(folder, "deep/a.md")


def test_a_folder_that_becomes_a_link_between_the_listing_and_the_reading_leads_nowhere(folder):
    assert everything(folder) == (["deep/a.md"], [])
    (folder / "deep").rename(folder / "moved")
    (folder / "deep").symlink_to(folder.parent / "outside")
    with pytest.raises(NotRead, match="deep: it is a symbolic link"):
        read_below(folder, "deep/a.md")
    (folder / "deep").unlink()
    folder.rename(folder.with_name("gone"))
    folder.symlink_to(folder.with_name("gone"))
    with pytest.raises(NotRead, match="it is a symbolic link"):
        read_below(folder, "moved/a.md")
    assert everything(folder) == (
        [],
        [f"{folder}: it is a symbolic link, and links are not followed; give its target instead"],
    )


@pytest.mark.parametrize("name", ["../outside/a.md", "deep/../../outside/a.md", "", ".", "a\0.md"])
def test_no_name_leads_out_of_the_folder(folder, name):
    with pytest.raises(NotRead):
        read_below(folder, name)
    with pytest.raises(NotRead):
        read_below(folder, folder.parent / "outside" / "a.md")


def test_a_link_to_what_is_found_where_it_lies_is_no_loss(folder):
    (folder / "again.md").symlink_to("deep/a.md")
    (folder / "round").symlink_to(".")
    (folder / "deep" / "up").symlink_to("..")
    assert everything(folder) == (["deep/a.md"], [])
    found, left_out = everything(folder, enter=lambda below: below != PurePosixPath("deep"))
    assert (found, [sentence.partition(":")[0] for sentence in left_out]) == ([], [])
    (folder / "other").symlink_to("deep")
    found, left_out = everything(folder, enter=lambda below: below != PurePosixPath("deep"))
    assert [sentence.partition(":")[0] for sentence in left_out] == [str(folder / "other")]


def test_the_bounds_are_of_bytes_files_and_depth(folder, monkeypatch):
    (folder / "b.md").write_bytes(b"12345")
    assert read_below(folder, "b.md", most=5) == b"12345"
    with pytest.raises(NotRead, match="it has 5 bytes, and 4 are read at most"):
        read_below(folder, "b.md", most=4)
    assert read_below(folder, "b.md", most=2, tail=True) == b"45"
    with monkeypatch.context() as few:
        few.setattr(bounded, "MAX_FILES", 1)
        told = f"{folder}: it holds more than 1 files; give folders below it"
        assert everything(folder) == (["b.md"], [told])
    below = folder / "/".join(["x"] * 70)
    below.mkdir(parents=True)
    (below / "c.md").touch()
    found, (sentence,) = everything(folder)
    assert (found, "deeper than 64" in sentence) == (["b.md", "deep/a.md"], True)


def test_no_descriptor_stays_open(folder):
    def count():
        return len([*Path("/proc/self/fd").iterdir()])

    before = count()
    everything(folder)
    read_below(folder, "deep/a.md")
    with opened_below(folder, "deep/a.md"):
        pass
    (folder / "link.md").symlink_to("deep/a.md")
    for name in ("link.md", "link.md/x", "deep", "deep/none", "none/none"):
        with pytest.raises(NotRead):
            read_below(folder, name)
    assert count() == before


def test_a_link_from_one_agents_folder_of_the_host_to_anothers_is_no_session_of_its_own(tmp_path):
    for agent in ("main", "other"):
        (tmp_path / "agents" / agent / "agent").mkdir(parents=True)
    theirs = tmp_path / "agents" / "other" / "agent" / "openclaw-agent.sqlite"
    sqlite3.connect(theirs).close()
    theirs.touch()
    (tmp_path / "agents" / "main" / "agent" / "openclaw-agent.sqlite").symlink_to(theirs)
    with pytest.raises(ToolError, match="keeps no sessions of this agent"):
        list(AgentSessions(tmp_path).entries("agent:other:main"))
