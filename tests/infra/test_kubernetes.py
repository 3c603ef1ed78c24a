"""The manifests are what Kubernetes knows, strictly, and run relayers with no more rights than they need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from infra_tools import INFRA
from typed_commands import run_relayer

from demo.relayer_process import RelayerProcess
from relayer.settings.config import RelayerSettings

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="pip install -e '.[infra]'")
BASE = INFRA / "kubernetes/base"
VERSIONS = ("1.30", "1.34")


def _documents() -> list[dict[str, Any]]:
    return [
        document
        for file in sorted(BASE.glob("*.yaml"))
        if file.name != "kustomization.yaml"
        for document in yaml.safe_load_all(file.read_text())
    ]


def _one(kind: str) -> dict[str, Any]:
    [found] = [document for document in _documents() if document["kind"] == kind]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_strictly_valid(version: str) -> None:
    documents = _documents()
    assert len(documents) >= 9
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)


def test_a_field_that_does_not_exist_would_be_found() -> None:
    broken = _one("Deployment")
    broken["spec"]["template"]["spec"]["runAsNonRoot"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


def test_kustomize_is_given_every_manifest() -> None:
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    assert sorted([*listed, "kustomization.yaml"]) == sorted(file.name for file in BASE.iterdir())


def test_a_relayer_has_no_privileges_and_a_file_system_that_it_cannot_write() -> None:
    pod = _one("Deployment")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 10001)
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_no_secret_stands_in_a_manifest() -> None:
    assert "Secret" not in {document["kind"] for document in _documents()}
    [container] = _one("Deployment")["spec"]["template"]["spec"]["containers"]
    assert {"MEMRELAY_RELAYER_KEY", "AWS_SECRET_ACCESS_KEY"}.isdisjoint(
        {entry["name"] for entry in container["env"]} | _one("ConfigMap")["data"].keys()
    )


def test_every_setting_exists_and_who_is_served_must_be_said() -> None:
    settings = _one("ConfigMap")["data"]
    named = {name.removeprefix("MEMRELAY_").lower() for name in settings}
    assert named - {"backup_to"} <= RelayerSettings.model_fields.keys()
    assert settings["MEMRELAY_ACCOUNTS"] == ""


def test_the_nightly_backup_is_a_command_that_backs_up(tmp_path: Path) -> None:
    [pod] = [document["spec"]["jobTemplate"]["spec"]["template"] for document in _of("CronJob")]
    [container] = pod["spec"]["containers"]
    settings = _one("ConfigMap")["data"]
    assert settings["MEMRELAY_BACKUP_TO"].startswith("s3://")
    assert settings["MEMRELAY_BACKUP_TO"] != settings["MEMRELAY_STORE"]
    place = _store_of(tmp_path)
    made = run_relayer(place | {"MEMRELAY_BACKUP_TO": str(tmp_path / "backup")}, *container["args"])
    assert (made.returncode, "the backup is complete" in made.stdout) == (0, True), made.stderr


def test_a_backup_is_let_out_to_the_store_and_is_no_relayer() -> None:
    [job] = _of("CronJob")
    labels = job["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    relayers = [_one("Deployment")["spec"]["selector"]["matchLabels"], _one("Service")["spec"]["selector"]]
    assert all(labels.items() - wanted.items() for wanted in relayers)
    [policy] = [one for one in _of("NetworkPolicy") if one["spec"]["podSelector"]["matchLabels"] == labels]
    assert {"ports": [{"protocol": "TCP", "port": 443}]} in policy["spec"]["egress"]
    assert "ingress" not in policy["spec"]


def _of(kind: str) -> list[dict[str, Any]]:
    return [document for document in _documents() if document["kind"] == kind]


def _store_of(folder: Path) -> dict[str, str]:
    """A store as a relayer's first start leaves it, and where it is."""
    with RelayerProcess(folder) as started:
        return {"MEMRELAY_DATA": str(started.data)}
