"""Dashboard and alerts ask for what a relayer really publishes, and every alert leads to a page."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from border import border
from infra_tools import INFRA, ROOT, run, tool
from typed_commands import machine, run_gateway

from relayer.http.problems import CODES
from relayer.http.routes import table

MONITORING = INFRA / "monitoring"
ALERTS = [
    rule
    for group in yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [rule["expr"] for rule in ALERTS] + [
    target["expr"] for panel in PANELS for target in panel["targets"]
]
SELECTOR = re.compile(r"\b((?:memrelay|process)_[a-z_]+)(?:\{([^}]*)\})?")


@pytest.fixture
async def published(tmp_path: Path) -> tuple[str, set[str], set[str]]:
    """The metrics of a relayer that was used and of a gateway, the relayer's routes, and its checks."""
    async with border() as at:
        await at.call("POST", "/v1/memories", {"items": [{"text": "the canary sings"}]})
        await at.call("POST", "/v1/recall", {"query": "what does the canary do?"})
        turn = {"role": "user", "text": "I moved to Lisbon."}
        await at.call("POST", "/v1/analyze", {"turns": [turn]})
        text = (await at.http.get(f"{at.url}/metrics")).text
        text += run_gateway(machine(tmp_path, at.url, "5b" * 32), "outbox", "status", "--prometheus").stdout
        routes = {route.path for route in table()}
        return text, routes, set((await at.relayer.readiness.check()).checks)


async def test_every_metric_and_label_is_one_that_a_relayer_publishes(
    published: tuple[str, set[str], set[str]],
) -> None:
    text, routes, checks = published
    samples: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^([a-z_]+)(?:\{(.*)\})? ", text, re.MULTILINE):
        samples.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    values = {
        "outcome": {"answered", "empty", "degraded"},
        "of": {"query", "memory"},
        "route": routes,
        "check": checks,
        "code": {*CODES, "ok", "corrupt_namespace", "rollback_detected"},
    }
    seen = 0
    for expression in EXPRESSIONS:
        for name, selector in SELECTOR.findall(expression):
            seen += 1
            assert name in samples, expression
            for label, operator, wanted in re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', selector):
                assert label in samples[name] | {"job", "instance"}, expression
                if label in values:
                    assert set(wanted.split("|")) <= values[label], expression
                assert operator
    assert seen > 40


async def test_a_dashboard_groups_by_labels_that_exist(published: tuple[str, set[str], set[str]]) -> None:
    text, _, _ = published
    known = set(re.findall(r'[{,](\w+)="', text)) | {"instance", "job"}
    named = {
        label.strip()
        for expression in EXPRESSIONS
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression)
        for label in labels.split(",")
    }
    assert named
    assert named <= known


async def test_what_a_relayer_counts_of_its_work_is_asked_for_somewhere(
    published: tuple[str, set[str], set[str]],
) -> None:
    text, _, _ = published
    asked = {name for expression in EXPRESSIONS for name, _ in SELECTOR.findall(expression)}
    prefixes = ("recalls", "capture_", "embedding_seconds_bucket", "rate_limited", "backup_", "gateway_")
    of_the_product = set(
        re.findall(rf"^(memrelay_(?:{'|'.join(prefixes)})[a-z_]*?)(?:\{{.*\}})? ", text, re.MULTILINE)
    )
    counted = {name for name in of_the_product if not name.endswith("_created")}
    assert len(counted) == 9
    assert counted <= asked


def test_every_alert_is_tried_out_firing_and_silent() -> None:
    tried = [
        trial
        for test in yaml.safe_load((MONITORING / "alerts_test.yml").read_text())["tests"]
        for trial in test["alert_rule_test"]
    ]
    firing = {trial["alertname"] for trial in tried if trial["exp_alerts"]}
    silent = {trial["alertname"] for trial in tried if not trial["exp_alerts"]}
    # Where two series stand in one test and one of them is told, the other is the silent one.
    silent |= {
        trial["alertname"]
        for test in yaml.safe_load((MONITORING / "alerts_test.yml").read_text())["tests"]
        for trial in test["alert_rule_test"]
        if len(trial["exp_alerts"]) == 1 and len(test["input_series"]) > 1
    }
    named = {rule["alert"] for rule in ALERTS}
    assert (named - firing, named - silent) == (set(), set())


def test_prometheus_takes_the_configuration_and_the_alerts(tmp_path: Path) -> None:
    promtool = tool("promtool")
    token = tmp_path / "token"
    token.write_text("a token of sixteen characters")
    configuration = (INFRA / "compose/prometheus.yml").read_text()
    assert "/run/secrets/metrics_token" in configuration
    (tmp_path / "prometheus.yml").write_text(configuration.replace("/run/secrets/metrics_token", str(token)))
    shutil.copy(MONITORING / "alerts.yml", tmp_path)
    for arguments in (
        ("check", "config", tmp_path / "prometheus.yml"),
        ("test", "rules", MONITORING / "alerts_test.yml"),
    ):
        checked = run(promtool, *arguments)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_prometheus_understands_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:number{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(EXPRESSIONS)
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked = run(tool("promtool"), "check", "rules", file)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_leads_to_a_runbook() -> None:
    assert len({rule["alert"] for rule in ALERTS}) == len(ALERTS)
    assert not [rule["alert"] for rule in ALERTS if not (ROOT / rule["annotations"]["runbook"]).is_file()]


def test_every_alert_that_a_runbook_names_exists_and_every_one_is_named() -> None:
    pages = "".join(file.read_text() for file in (ROOT / "docs/runbooks").glob("*.md"))
    assert set(re.findall(r"`(Memrelay[A-Za-z]+)`", pages)) == {rule["alert"] for rule in ALERTS}
