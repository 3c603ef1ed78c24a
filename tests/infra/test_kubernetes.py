"""The manifests are what Kubernetes knows, strictly, and run relayers with no more rights than they need."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from infra_tools import INFRA

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
    assert {
        name.removeprefix("MEMRELAY_").lower() for name in settings
    } <= RelayerSettings.model_fields.keys()
    assert settings["MEMRELAY_ACCOUNTS"] == ""
