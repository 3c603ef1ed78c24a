"""The documents say what the code does: fields, limits, codes, routes and settings are compared, not trusted."""

from __future__ import annotations

import ast
import os
import re
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
import typer

from gateway_plugin.cli import app as gateway_app
from gateway_plugin.settings.model import PluginSettings
from relayer import errors
from relayer.access import accounts
from relayer.cli import app as relayer_app
from relayer.domain import namespace, operations
from relayer.domain.operations import Refusal
from relayer.http import limits, problems, routes
from relayer.log import erasure as erasure_reports
from relayer.settings.config import RelayerSettings, load_settings
from relayer.wire import sealing

DOCS = Path(__file__).resolve().parents[2] / "docs"
FORMAT = (DOCS / "format.md").read_text(encoding="utf-8")
PROTOCOL = (DOCS / "protocol.md").read_text(encoding="utf-8")
WATCH = (DOCS / "operations" / "watch.md").read_text(encoding="utf-8")
RELAYER_SETTINGS = (DOCS / "operations" / "settings.md").read_text(encoding="utf-8")
PLUGIN_SETTINGS = (DOCS / "settings.md").read_text(encoding="utf-8")

RELAYER = DOCS.parent / "relayer"
_CODED, _RULED = {"HttpProblem", "Refused"}, {"NotAccepted", "unauthorized"}


def _between(text: str, start: str, end: str) -> str:
    assert text.count(start) == 1, f"{start!r} must begin one passage"
    return text.partition(start)[2].partition(end)[0]


def _numbered(text: str) -> list[str]:
    """Return the names that stand right of a position in a table, by position."""
    cells = [
        cell.strip()
        for line in text.splitlines()
        if line.startswith("|")
        for cell in line.strip("|").split("|")
    ]
    places = {int(place): name for place, name in pairwise(cells) if place.isdigit()}
    return [places[place].replace(" ", "_") for place in sorted(places)]


@pytest.mark.parametrize(
    ("start", "end", "kind"),
    [
        ("**Report of an erasure**", "**Account**", erasure_reports.ErasureReport),
        ("**Pointer**", "**Keyring**", namespace.Pointer),
        ("**Keyring**", "**Manifest**", namespace.Keyring),
        ("**Manifest**", "A segment's row", namespace.Manifest),
        ("## Entry", "At most 8 MiB", operations.Entry),
        ("**Origin**", "**Stored**", operations.Origin),
        ("**Stored**", "**Vector set**", operations.Stored),
        ("## Record", "Kinds:", operations.Record),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_table_of_positions_lists_the_fields_of_its_struct(
    start: str, end: str, kind: type[msgspec.Struct]
) -> None:
    assert tuple(_numbered(_between(FORMAT, start, end))) == kind.__struct_fields__


def test_the_account_table_lists_the_fields_of_what_is_stored() -> None:
    stored = next(
        value
        for value in vars(accounts).values()
        if isinstance(value, type)
        and issubclass(value, msgspec.Struct)
        and "revocations" in value.__struct_fields__
    )
    assert tuple(_numbered(_between(FORMAT, "**Account**", "**Pointer**"))) == stored.__struct_fields__


def test_the_source_of_a_record_is_listed_in_order() -> None:
    listed = re.findall(r"`\[([a-z_, ]+)\]`", _between(FORMAT, "**Source**:", "## Vectors"))[0]
    assert tuple(listed.split(", ")) == operations.Source.__struct_fields__


def test_every_kind_of_operation_is_listed_with_its_number_of_fields() -> None:
    listed = dict(
        re.findall(r"^\| `([a-z_]+)` \| (.+) \|$", _between(FORMAT, "## Operations", "*Work*"), re.MULTILINE)
    )
    kinds = [kind for kind in vars(operations).values() if isinstance(kind, type) and _tag(kind)]
    known = {_tag(kind): len(kind.__struct_fields__) for kind in kinds if _tag(kind) != "malformed"}
    plain = {kind: re.sub(r"\([^)]*\)", "", fields) for kind, fields in listed.items()}
    assert {kind: fields.count(",") + 1 for kind, fields in plain.items()} == known


def _tag(kind: type) -> str | None:
    tag = kind.__struct_config__.tag if issubclass(kind, msgspec.Struct) else None
    return tag if isinstance(tag, str) else None


def test_every_object_type_is_listed_or_named_as_reserved() -> None:
    passage = _between(FORMAT, "| type | object | key |", "## Where objects are")
    rows = {int(number) for number in re.findall(r"^\| (\d+) \|", passage, re.MULTILINE)}
    reserved = {int(number) for number in re.findall(r"(\d+) \([a-z ]+\)", passage)}
    assert rows | reserved == {kind.value for kind in sealing.ObjectType}


def test_every_problem_is_listed_with_its_status() -> None:
    table = _between(PROTOCOL, "## Problems", "# The log\n")
    listed = {
        code: {int(status) for status in statuses.split(", ")}
        for statuses, code in re.findall(r"^\| ([\d, ]+) \| `([a-z_]+)` \|", table, re.MULTILINE)
    }
    for code in problems.CODES:
        assert problems.HttpProblem(code).status in listed[code]
    for code, statuses in listed.items():
        raised = problems.problem_of(errors.Refused(code, "x")).status
        assert code in problems.CODES or raised in statuses


def _said_of_refusals(*, rules: bool) -> set[str]:
    """Return the codes, or the rules for the log, that the relayer's modules write where they refuse a request."""
    said = set()
    for path in RELAYER.rglob("*.py"):
        if "compat" in path.parts:  # answers as MemWal does
            continue
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            name = call.func.id
            places = call.args[:1] if name in (_RULED if rules else _CODED) else []
            if rules and name in _CODED:
                places = [word.value for word in call.keywords if word.arg == "rule"]
            written = [one for place in places for one in ast.walk(place) if isinstance(one, ast.Constant)]
            said |= {one.value for one in written if re.fullmatch("[a-z_]+", str(one.value))}
    return said


def test_every_code_that_a_refusal_is_written_with_is_listed() -> None:
    codes = _said_of_refusals(rules=False)
    assert {"queue_full", "quota_exceeded", "wrong_confirmation"} <= codes
    assert not [code for code in sorted(codes) if f"| `{code}` |" not in PROTOCOL]


def test_every_rule_that_the_log_names_is_listed() -> None:
    rules = _said_of_refusals(rules=True) | {*limits.RATE_CAUSES}
    assert {"clock_set_back", "certificate_time", "admin_not_granted", "agent"} <= rules
    table = _between(WATCH, "| `rule` of a refusal |", "\n\n")
    assert not [rule for rule in sorted(rules) if f"`{rule}`" not in table]


def test_every_refusal_of_the_log_is_listed() -> None:
    # An expired signature fails the request as a whole.
    told = set(Refusal) - {Refusal.EXPIRED}
    assert not [refusal for refusal in told if f"`{refusal.value}`" not in PROTOCOL]


def test_every_signed_route_is_listed_with_right_and_cost() -> None:
    listed = {
        (method, path): (right, float(cost))
        for method, path, right, cost in re.findall(
            r"^\| `([A-Z]+) (/v1/[a-z/{}-]+)[^`]*` \| ([a-z]+) \| (\d+) \|", PROTOCOL, re.MULTILINE
        )
        if right != "open"
    }
    signed = [route for route in routes.table() if route.right is not None]
    assert listed == {(route.method, route.path): (str(route.right), route.cost) for route in signed}


def test_every_step_that_a_deadline_can_name_is_listed() -> None:
    root = DOCS.parent / "relayer"
    steps = {
        step
        for file in root.rglob("*.py")
        for step in re.findall(r"\.step\(\"([a-z_]+)\"\)", file.read_text(encoding="utf-8"))
    }
    assert steps
    passage = _between(PROTOCOL, "names the step that was running:", "\n\n")
    assert not [step for step in steps if f"`{step}`" not in passage]


def test_every_setting_of_the_relayer_is_listed_with_its_variable() -> None:
    missing = [
        name
        for name in RelayerSettings.model_fields
        if f"`MEMRELAY_{name.upper()}`" not in RELAYER_SETTINGS
        and f"`--{name.replace('_', '-')}`" not in RELAYER_SETTINGS
    ]
    assert not missing


def test_the_file_of_settings_that_is_shown_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MEMRELAY_")]:
        monkeypatch.delenv(name)
    file = tmp_path / "relayer.toml"
    file.write_text(_between(RELAYER_SETTINGS, "```toml\n", "```"))
    settings = load_settings({"config": file}, {})
    assert (settings.store, settings.quota_memories) == ("s3://memories/team", 100_000)
    assert settings.served is not None


def _documents() -> dict[str, str]:
    root = DOCS.parent
    files = [*root.glob("*.md"), *DOCS.rglob("*.md")]
    return {str(file.relative_to(root)): file.read_text(encoding="utf-8") for file in files}


def test_every_variable_that_a_document_names_is_read_somewhere() -> None:
    root = DOCS.parent
    code = "".join(
        file.read_text(encoding="utf-8")
        for package in ("relayer", "gateway_plugin")
        for file in (root / package).rglob("*.*")
        if file.suffix in {".py", ".js"}
    )
    known = {f"MEMRELAY_{name.upper()}" for name in RelayerSettings.model_fields} | set(
        re.findall(r"MEMRELAY_[A-Z_]+", code)
    )
    named = {
        (name, variable)
        for name, text in _documents().items()
        for variable in re.findall(r"`(MEMRELAY_[A-Z_]+)`", text)
    }
    assert named
    assert not [f"{name}: {variable}" for name, variable in named if variable not in known]


@pytest.mark.parametrize(("program", "app"), [("memrelay", relayer_app), ("memrelay-gateway", gateway_app)])
def test_every_command_that_a_document_names_exists(program: str, app: typer.Typer) -> None:
    known = _commands(app)
    named = {
        (name, command)
        for name, text in _documents().items()
        for code in re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
        for command in re.findall(rf"(?:^|`|: ){program} ([a-z-]+(?: [a-z][a-z-]+)?)", code, re.MULTILINE)
    }
    assert named
    unknown = [
        f"{name}: {command}" for name, command in named if not known & {command, command.partition(" ")[0]}
    ]
    assert not unknown


def _commands(app: typer.Typer) -> set[str]:
    names = {
        command.name or (command.callback.__name__ if command.callback else "")
        for command in app.registered_commands
    }
    for group in app.registered_groups:
        assert group.typer_instance is not None
        names |= {f"{group.name} {name}" for name in _commands(group.typer_instance)}
        own = group.typer_instance.registered_callback
        if own is not None and own.invoke_without_command is True:
            names.add(str(group.name))
    return names


def test_every_setting_of_the_plugin_in_the_table_exists_with_its_default() -> None:
    passage = _between(PLUGIN_SETTINGS, "| key | default | |", "More keys are accepted")
    rows = re.findall(r"^\| ((?:`[a-zA-Z.]+`(?:, )?)+) \| ([^|]*) \|", passage, re.MULTILINE)
    assert rows
    for names, defaults in rows:
        sealing = re.findall(r"`([a-zA-Z.]+)`", names)
        found = [_default(PluginSettings(), key) for key in sealing]
        if defaults and defaults != "all":
            assert ", ".join(found) == defaults, names


def _default(settings: PluginSettings, key: str) -> str:
    value: object = settings
    for part in key.split("."):
        value = getattr(value, re.sub(r"([A-Z])", r"_\1", part).lower())
    return (
        ", ".join(map(str, value))
        if isinstance(value, tuple)
        else str(value).replace("True", "true").replace("False", "false").replace("None", "by host")
    )
