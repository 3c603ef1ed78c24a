"""A profile in somebody's file: its block is replaced, and every other byte stays."""

from __future__ import annotations

import stat

import pytest

from gateway_plugin.files.blocks import ProfileFileProblem, put_profile, without_profiles
from gateway_plugin.files.exports import read_file
from gateway_plugin.text.wrappers import strip

DOCUMENT = "Kept from memories.\n\n## About the user\n\n- lives in Porto [x]\n"
BLOCK = f'<memrelay-memories profile="ops">\n\n{DOCUMENT}\n</memrelay-memories>'


@pytest.fixture
def file(tmp_path):
    return tmp_path / "USER.md"


def test_a_file_that_is_not_there_is_made_for_its_owner(file):
    assert put_profile(file, "ops", DOCUMENT)
    assert file.read_text() == f"{BLOCK}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# Me\n", f"# Me\n\n{BLOCK}\n"),
        ("# Me", f"# Me\n\n{BLOCK}\n"),
        (
            'a\n<memrelay-memories profile="ops">\nold\n</memrelay-memories>\nb\n</memrelay-memories>',
            f"a\n{BLOCK}\nb\n</memrelay-memories>",
        ),
        (
            '<memrelay-memories profile="coder">\nhis\n</memrelay-memories>\n',
            f'<memrelay-memories profile="coder">\nhis\n</memrelay-memories>\n\n{BLOCK}\n',
        ),
    ],
)
def test_the_block_takes_its_place_and_the_rest_stays(file, before, after):
    file.write_text(before)
    assert put_profile(file, "ops", DOCUMENT)
    assert file.read_text() == after


def test_the_same_profile_writes_nothing(file):
    put_profile(file, "ops", DOCUMENT)
    inode = file.stat().st_ino
    assert not put_profile(file, "ops", DOCUMENT)
    assert file.stat().st_ino == inode


def test_an_empty_profile_makes_no_block_and_empties_one(file):
    assert not put_profile(file, "ops", "")
    assert not file.exists()
    file.write_text(f"# Me\n\n{BLOCK}\n")
    assert put_profile(file, "ops", "")
    assert file.read_text() == '# Me\n\n<memrelay-memories profile="ops">\n</memrelay-memories>\n'
    assert put_profile(file, "ops", DOCUMENT)
    assert file.read_text() == f"# Me\n\n{BLOCK}\n"


def test_line_ends_and_the_mode_stay_as_they_are(file):
    file.write_bytes(b"# Me\r\n")
    file.chmod(0o664)
    for document in ("first\n", DOCUMENT):
        assert put_profile(file, "ops", document)
    assert file.read_bytes() == f"# Me\n\n{BLOCK}\n".replace("\n", "\r\n").encode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o664
    assert not put_profile(file, "ops", DOCUMENT)


def test_a_link_is_named_and_what_it_leads_to_stays_as_it_is(file, tmp_path):
    file.write_text("# Me\n")
    link = tmp_path / "link.md"
    link.symlink_to(file)
    with pytest.raises(ProfileFileProblem, match=r"link\.md: it is a symbolic link"):
        put_profile(link, "ops", DOCUMENT)
    assert (link.is_symlink(), file.read_text()) == (True, "# Me\n")


@pytest.mark.parametrize(
    "damaged",
    [
        '<memrelay-memories profile="ops">\nits end was deleted\n',
        f'<memrelay-memories profile="ops">\n{BLOCK}\n',
        f"{BLOCK}\n{BLOCK}\n",
    ],
)
def test_a_damaged_block_is_named_and_nothing_is_written(file, damaged):
    file.write_text(damaged)
    with pytest.raises(ProfileFileProblem, match=r"USER\.md contains an incomplete or duplicated profile"):
        put_profile(file, "ops", DOCUMENT)
    assert file.read_text() == damaged


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "is not a regular file"), (b"\xff\xfe", "is not UTF-8")],
    ids=["directory", "binary"],
)
def test_what_takes_no_text_is_named(file, content, said):
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    with pytest.raises(ProfileFileProblem, match=said):
        put_profile(file, "ops", DOCUMENT)


def test_a_file_with_a_profile_is_imported_without_it_and_lines_keep_their_numbers(file):
    file.write_text(f"- likes tea\n{BLOCK}\n- likes rain\n")
    items = read_file(file, "USER.md")
    assert [item.text for item in items] == ["likes tea", "likes rain"]
    assert items[1].source.reference.endswith(f"{file.read_text().count(chr(10))}")
    assert without_profiles("nothing of ours\n") == "nothing of ours\n"


def test_a_turn_into_which_a_host_put_the_file_is_captured_without_it(file):
    file.write_text("before\n")
    put_profile(file, "ops", DOCUMENT)
    assert strip(f"{file.read_text()}\nWhere do I live?") == "before\n\nWhere do I live?"
