"""The image, as far as it can be told without a container engine.

hadolint reads the Dockerfile. What its steps make is then made and run on this machine: the files that it copies are
built, installed at its place, and started by its user with its environment, on a file system of which nothing can be
written but its volume. Third-party packages are taken from the test's own environment instead of being fetched again.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from infra_tools import INFRA, ROOT, run, tool
from processes import CLEAN, wait_until
from s3_servers import free_ports

# A wheel is built and a relayer started, on a machine that may be busy.
pytestmark = pytest.mark.timeout(300)

DOCKERFILE = INFRA / "container/Dockerfile"
STEPS = [
    line.partition(" ")[::2]
    for line in re.sub(r"\\\n\s*", "", DOCKERFILE.read_text()).splitlines()
    if line and not line.startswith("#")
]
RUNTIME = STEPS[max(index for index, (step, _) in enumerate(STEPS) if step == "FROM") :]

# Run by root in a mount namespace of its own, which ends with it: python, wheel, packages.
REPLAY = """
set -eu
mount -t tmpfs tmpfs /opt
mkdir /opt/python /opt/packages
mount --bind "$BASE" /opt/python
mount --bind "$PACKAGES" /opt/packages
/opt/python/bin/python3 -m venv --without-pip /opt/memrelay
"$PYTHON" -m pip --quiet --disable-pip-version-check --python /opt/memrelay/bin/python install --no-deps --no-index \
    --compile "$WHEEL" 2>&1
echo /opt/packages > "$(/opt/memrelay/bin/python -c 'import site; print(site.getsitepackages()[0])')/packages.pth"
mount -t tmpfs tmpfs /var/lib
mkdir "$VOLUME"
mount -t tmpfs -o mode=0700,uid=10001,gid=10001 tmpfs "$VOLUME"
cut -d' ' -f2 /proc/self/mounts | sort -u | while read -r place; do
    case $place in "$VOLUME" | /proc* | /sys* | /dev*) ;; *) mount -o remount,bind,ro "$place" 2>/dev/null || : ;; esac
done
for place in /opt /var/lib /tmp /etc; do
    if touch "$place/memrelay-wrote-here" 2>/dev/null; then echo "$place can be written" >&2; exit 9; fi
done
cd "$VOLUME"
exec setpriv --reuid "$OWNER" --regid "$OWNER" --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs \
    env -i "$@"
"""


def _all(step: str) -> list[str]:
    return [rest for name, rest in RUNTIME if name == step]


def _environment() -> dict[str, str]:
    [settings] = _all("ENV")
    pairs = dict(part.split("=", 1) for part in settings.split())
    return pairs | {"PATH": pairs["PATH"].replace("$PATH", "/usr/local/bin:/usr/bin:/bin")}


def test_hadolint_has_nothing_to_say() -> None:
    checked = run(tool("hadolint"), DOCKERFILE)
    assert (checked.returncode, checked.stdout) == (0, "")


def test_the_image_runs_as_nobody_from_a_pinned_base_and_holds_no_secret() -> None:
    assert _all("USER") == ["10001:10001"]
    assert re.search(r"^ARG PYTHON=python:\d+\.\d+\.\d+-slim-\w+$", DOCKERFILE.read_text(), re.MULTILINE)
    assert not [name for name in _environment() if re.search("KEY|SECRET|TOKEN|PASSWORD|ACCOUNT", name)]


def test_what_is_copied_is_let_through_to_the_builder_and_nothing_else() -> None:
    ignored = (INFRA / "container/Dockerfile.dockerignore").read_text().splitlines()
    copied = {
        name for step, rest in STEPS if step == "COPY" and "--from" not in rest for name in rest.split()[:-1]
    }
    assert "*" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == copied


def test_the_extras_of_the_image_name_every_package_that_the_relayer_imports() -> None:
    distributions = importlib.metadata.packages_distributions()
    project = importlib.metadata.requires("memrelay") or []
    named = {
        re.split(r"[^A-Za-z0-9_.-]", requirement)[0].lower().replace("_", "-")
        for requirement in project
        if "extra ==" not in requirement or re.search(r"extra == .(relayer|otlp)\b", requirement)
    }
    imported = {
        name
        for file in (ROOT / "relayer").rglob("*.py")
        for name in re.findall(r"^\s*(?:from|import) (\w+)", file.read_text(), re.MULTILINE)
    }
    foreign = {
        name for name in imported if name in distributions and name not in {"relayer", "gateway_plugin"}
    }
    assert "aiohttp" in foreign
    # botocore and urllib3 belong to boto3; click to typer; pydantic_core to pydantic.
    brought = {"botocore": "boto3", "click": "typer", "pydantic_core": "pydantic", "urllib3": "boto3"}
    missing = {
        name
        for name in foreign
        if not {distribution.lower().replace("_", "-") for distribution in distributions[name]}
        & (named | ({name.replace("_", "-")} if brought.get(name) in named else set()))
    }
    assert not missing


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of exactly what the Dockerfile copies, where any user can read it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    skipped = shutil.ignore_patterns("__pycache__")
    for rest in [rest for step, rest in STEPS if step == "COPY" and "--from" not in rest]:
        *names, target = rest.split()
        for name in names:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / target, ignore=skipped)
            else:
                shutil.copy(ROOT / name, source / target)
    built = run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out, source, env=CLEAN
    )
    assert built.returncode == 0, built.stderr
    [made] = out.glob("memrelay-*.whl")
    return made


@pytest.fixture
def container(wheel: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, str], Path]]:
    """A relayer that was started as the image starts it; with its environment, and its log."""
    unshare = tool("unshare")
    if os.geteuid() != 0 or run(unshare, "--mount", "mount", "-t", "tmpfs", "tmpfs", "/opt").returncode != 0:
        pytest.skip("needs root and the right to mount, to make a read-only file system")
    [owner] = _all("USER")
    [volume] = _all("VOLUME")
    [entry], [command] = _all("ENTRYPOINT"), _all("CMD")
    [port] = free_ports(1)
    environment = _environment() | {
        "MEMRELAY_HOST": "127.0.0.1",
        "MEMRELAY_PORT": str(port),
        "MEMRELAY_ACCOUNTS": "open",
        "MEMRELAY_PUBLIC_URL": "https://memory.example.org",
        # This machine's Python looks for its library at its old place, where that user may not go.
        "LD_LIBRARY_PATH": "/opt/python/lib",
    }
    assert _environment()["MEMRELAY_DATA"] == volume
    pairs = [f"{name}={value}" for name, value in environment.items()]
    replayed = CLEAN | {
        "BASE": sys.base_prefix,
        "PACKAGES": next(path for path in sys.path if path.endswith("site-packages")),
        "PYTHON": sys.executable,
        "WHEEL": str(wheel),
        "VOLUME": volume,
        "OWNER": owner.partition(":")[0],
    }
    log = tmp_path / "log.txt"
    with log.open("w") as sink:
        process = subprocess.Popen(
            [unshare, "--mount", "sh", "-c", REPLAY, "sh", *pairs, *json.loads(entry), *json.loads(command)],
            stdout=sink,
            stderr=sink,
            text=True,
            env=replayed,
        )
    try:
        yield process, environment, log
    finally:
        process.kill()
        process.wait(30)


def test_the_image_s_relayer_gets_well_by_its_own_check_and_writes_to_its_volume_only(
    container: tuple[subprocess.Popen[str], dict[str, str], Path],
) -> None:
    process, environment, log = container
    [check] = [rest for step, rest in RUNTIME if step == "HEALTHCHECK"]
    command = json.loads(check.partition("CMD ")[2])

    def inside(*words: str) -> subprocess.CompletedProcess[str]:
        entered = ["nsenter", "--mount", "--target", str(process.pid), "setpriv", "--reuid", "10001"]
        pairs = [f"{name}={value}" for name, value in environment.items()]
        return run(*entered, "--regid", "10001", "--clear-groups", "env", "-i", *pairs, *words)

    wait_until(lambda: process.poll() is not None or inside(*command).returncode == 0)
    assert process.poll() is None, log.read_text()[-3000:]
    assert "is ready" in inside(*command, "--ready").stdout, log.read_text()[-3000:]
    shown = inside("stat", "-c", "%a %u", f"{environment['MEMRELAY_DATA']}/relayer.key").stdout
    assert shown.split() == ["600", "10001"]
    status = Path(f"/proc/{process.pid}/status").read_text()
    assert re.search(r"^Uid:\t10001\t10001\t10001\t10001$", status, re.MULTILINE)
    assert re.search(r"^CapBnd:\t0+$", status, re.MULTILINE)

    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0, log.read_text()[-3000:]
