from __future__ import annotations

import shutil
import subprocess
import sys

from wire_vectors import VECTORS

FILES = {
    "derivation",
    "sealing",
    "sealed_keys",
    "certificates",
    "signatures",
    "fleet_list",
    "names",
    "proofs",
    "sealed_bodies",
}


def run(directory, *arguments):
    command = [sys.executable, str(directory / "generate.py"), *arguments]
    root = str(VECTORS.parents[1])
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={"PYTHONPATH": root}
    )


def test_every_format_has_its_file():
    assert {path.stem for path in VECTORS.glob("*.json")} >= FILES


def test_the_generator_does_not_touch_what_is_frozen(tmp_path):
    shutil.copytree(VECTORS, tmp_path / "v", ignore=shutil.ignore_patterns("__pycache__"))
    before = {path.name: path.read_bytes() for path in (tmp_path / "v").glob("*.json")}
    assert run(tmp_path / "v").returncode == 1
    assert {path.name: path.read_bytes() for path in (tmp_path / "v").glob("*.json")} == before


def test_what_is_derived_is_generated_the_same_today(tmp_path):
    shutil.copy(VECTORS / "generate.py", tmp_path)
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    # A sealed key holds a fresh random key pair: it is frozen, not repeated.
    for name in FILES - {"sealed_keys"}:
        assert (tmp_path / f"{name}.json").read_bytes() == (VECTORS / f"{name}.json").read_bytes(), name
