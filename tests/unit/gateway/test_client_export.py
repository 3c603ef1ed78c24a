"""An export is read line by line, and one that was cut short is not taken for whole."""

from __future__ import annotations

import json

import pytest
from aiohttp import web
from wire_relayer import answer, prover_of, strangers

from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import RelayerRefused, RelayerUnreachable, RelayerUntrusted
from gateway_plugin.keys.identity import RootHolder, identify, parse_session_key
from relayer.wire.sealing import RootKeys
from relayer.wire.service import ExportRequest, ImportItem, ImportRequest

HEAD = {"memrelay_export": 1, "namespace": "ops", "memories": 1}
END = {"end": True, "memories": 1}
LINE = {
    "memory": {
        "id": "0" * 26, "text": "one", "kind": "fact", "audience": "agent", "trust": "user",
        "created_at": "2026-01-01T00:00:00Z",
    }
}  # fmt: skip


@pytest.fixture
async def client(wire, trust_store):
    made = RelayerClient(wire.url, trust=trust_store)
    yield made
    await made.aclose()


@pytest.fixture
def identity():
    return identify(RootHolder(RootKeys(b"5" * 32)), parse_session_key("agent:ops:s"), default_agent=None)


def sends(*lines):
    async def scripted(_):
        return web.Response(text="".join(json.dumps(line) + "\n" for line in lines))

    return scripted


async def fetched(client, identity):
    return [memory.text async for memory in client.export(identity, ExportRequest())]


async def test_a_whole_export_gives_its_memories(client, identity, wire):
    wire.script = [None, sends(HEAD, LINE, LINE, END)]
    assert await fetched(client, identity) == ["one", "one"]


@pytest.mark.parametrize("lines", [(), (HEAD,), (HEAD, LINE)])
async def test_an_export_without_its_end_is_an_error(client, identity, wire, lines):
    wire.script = [None, sends(*lines)]
    with pytest.raises(RelayerUnreachable, match="cut short"):
        await fetched(client, identity)


@pytest.mark.parametrize(
    ("change", "proven"),
    [
        (lambda body: body.replace(b'"one"', b'"two"'), 0),
        (lambda body: body[: body.rindex(b'{"proof"')], 1),
        (lambda body: b"".join(line + b"\n" for line in body.splitlines() if b'"proof"' not in line), 0),
    ],
    ids=["changed", "cut", "unproven"],
)
async def test_what_was_changed_on_the_way_is_not_believed(client, identity, wire, change, proven):
    async def scripted(request):
        prover = prover_of(request, wire.identity)
        prover.accepted(b"")
        first = prover.line(b"".join(json.dumps(line).encode() + b"\n" for line in (HEAD, LINE)))
        body = first + prover.line(json.dumps(LINE).encode() + b"\n" + json.dumps(END).encode() + b"\n")
        assert change(body) != body
        return strangers(web.Response(body=change(body)))

    wire.script = [None, scripted]
    exported = client.export(identity, ExportRequest())
    assert [(await anext(exported)).text for _ in range(proven)] == ["one"] * proven
    with pytest.raises(RelayerUntrusted):
        await anext(exported)


async def test_a_line_separator_in_a_text_does_not_end_a_line(client, identity, wire):
    text = "one\u2028two\x85three"
    line = {"memory": {**LINE["memory"], "text": text}}
    body = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in (HEAD, line, END))

    async def scripted(_):
        return web.Response(text=body)

    wire.script = [None, scripted]
    assert await fetched(client, identity) == [text]


async def test_what_is_no_export_is_an_error(client, identity, wire):
    wire.script = [None, sends(["not", "an", "object"])]
    with pytest.raises(RelayerUnreachable, match="no export"):
        await fetched(client, identity)


async def test_a_refusal_is_told_as_one(client, identity, wire):
    wire.script = [None, answer(409, "wrong_namespace_key")]
    with pytest.raises(RelayerRefused) as caught:
        await fetched(client, identity)
    assert caught.value.code == "wrong_namespace_key"


async def test_the_same_page_is_the_same_write(client, identity, wire):
    request = ImportRequest(memories=(ImportItem(text="one"),))
    for _ in range(2):
        wire.script = [sends({"memories": [{"status": "stored"}]})]
        await client.import_memories(identity, request)
    first, second = wire.bodies("/v1/import")
    assert first == second
    assert first["idempotency_key"].startswith("import-")
