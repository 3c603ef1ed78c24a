"""A recovery sheet that is anything else: one sentence, no secret made, no trace back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typed_commands import run_gateway, run_relayer

from relayer.wire.sheet import GATEWAY_SHEET, RELAYER_SHEET

SECRET = bytes(range(32))
HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "binary": bytes(range(256)) * 64,
    "UTF-16": GATEWAY_SHEET.render(SECRET).encode("utf-16"),
    "Latin-1": "1   Größe\n2   ß".encode("latin-1"),
    "zeros": b"\0" * 4096,
    "32 MiB in a line": b"1 " + b"a" * (32 << 20),
    "deep JSON": b"[" * 200_000,
    "digits of other scripts": GATEWAY_SHEET.render(SECRET).translate({48 + n: 0x0660 + n for n in range(10)}).encode(),
    "truncated": GATEWAY_SHEET.render(SECRET).rstrip().rpartition(" ")[0].encode(),
    "lines exchanged": GATEWAY_SHEET.render(SECRET).replace("1  ", "9  ").replace("2  ", "1  ").replace("9  ", "2  ").encode(),
}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "c"),
        "XDG_STATE_HOME": str(tmp_path / "s"),
    }


def refuses(home: dict[str, str], tmp_path: Path, sheet: Path) -> None:
    for done in (
        run_gateway(home, "keys", "recover", sheet),
        run_relayer(home, "keys", "recover", tmp_path / "relayer.key", "--sheet", sheet),
    ):
        assert done.returncode not in {0, 70}
        assert 0 < len(done.stderr) < 1000
        assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("secret"))
    assert not (tmp_path / "relayer.key").exists()


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_is_no_sheet_is_refused_in_a_sentence(home, tmp_path, content):
    sheet = tmp_path / "sheet.txt"
    sheet.write_bytes(content)
    refuses(home, tmp_path, sheet)


@pytest.mark.parametrize("kind", ["folder", "missing", "loop", "pipe", "device"])
def test_what_is_no_file_is_refused_and_not_waited_for(home, tmp_path, kind):
    sheet = tmp_path / "sheet"
    match kind:
        case "folder":
            sheet.mkdir()
        case "loop":
            sheet.symlink_to(sheet)
        case "pipe":
            os.mkfifo(sheet)
        case "device":
            sheet = Path("/dev/zero")
    refuses(home, tmp_path, sheet)


def test_a_sheet_of_the_other_kind_is_told_apart(home, tmp_path):
    sheet = tmp_path / "sheet.txt"
    sheet.write_text(RELAYER_SHEET.render(SECRET))
    assert "not of" in run_gateway(home, "keys", "recover", sheet).stderr
    sheet.write_text(GATEWAY_SHEET.render(SECRET))
    assert "not of" in run_relayer(home, "keys", "recover", tmp_path / "relayer.key", "--sheet", sheet).stderr
