"""Tags, metadata and filters where users stand: HTTP, the command line and a model's tools."""

from __future__ import annotations

import json

from plugin_site import PluginSite

from relayer.testing.local_relayer import local_relayer

ITEMS = [
    {"text": "The lamp costs 5 euro.", "tags": ["shop"], "metadata": {"price": 5}},
    {"text": "The lamp costs 15 euro.", "tags": ["shop", "sale"], "metadata": {"price": 15}},
]


async def test_http_lists_recalls_exports_and_deletes_what_passes_a_filter() -> None:
    async with local_relayer() as relayer:
        stored = await relayer.call("POST", "/v1/memories", {"items": ITEMS})
        assert stored.status_code == 200
        where = {"tags": "shop", "price": {"lt": 10}}
        listed = await relayer.call("POST", "/v1/memories/list", {"where": where})
        assert [(one["text"], one["tags"], one["metadata"]) for one in listed.json()["memories"]] == [
            ("The lamp costs 5 euro.", ["shop"], {"price": 5})
        ]
        assert listed.json()["total"] == 1
        found = await relayer.call(
            "POST", "/v1/recall", {"query": "lamp costs euro", "floor": 0, "where": where}
        )
        assert [one["metadata"] for one in found.json()["memories"]] == [{"price": 5}]
        lines = (await relayer.call("POST", "/v1/export", {"where": where})).text.splitlines()
        exported = [one["memory"] for line in lines if "memory" in (one := json.loads(line))]
        assert [one["metadata"] for one in exported] == [{"price": 5}]
        deleted = await relayer.call("POST", "/v1/memories/delete", {"where": where})
        assert deleted.json()["forgotten"] == 1
        left = await relayer.call("GET", "/v1/memories")
        assert [one["metadata"] for one in left.json()["memories"]] == [{"price": 15}]


def test_the_command_line_stores_tags_and_metadata_and_selects_by_them(site: PluginSite) -> None:
    for price in (5, 15):
        given = ("--tag", "shop", "--metadata", f"price={price}", "--metadata", "state=open")
        site.command("remember", f"The lamp costs {price} euro.", *given)
    site.command("remember", "The chair costs 5 euro.", "--metadata", "price=5")

    def listed(*options: str) -> list[str]:
        return [one["text"] for one in site.json("list", *options)["memories"]]

    assert listed("--tag", "shop", "--where", "price<10") == ["The lamp costs 5 euro."]
    assert listed("--where", "state!=open") == ["The chair costs 5 euro."]
    assert listed("--where", '{"or": [{"price": 15}, {"state": {"not": "open"}}]}') == [
        "The chair costs 5 euro.",
        "The lamp costs 15 euro.",
    ]
    found = site.json("search", "what costs euro", "--floor", "0", "--where", "price>=15")["memories"]
    assert [(one["text"], one["tags"], one["metadata"]) for one in found] == [
        ("The lamp costs 15 euro.", ["shop"], {"price": 15, "state": "open"})
    ]
    assert "passes these filters" in site.command("list", "--tag", "none").stdout


def test_a_models_tools_store_labels_and_search_and_list_by_filter(site: PluginSite) -> None:
    plugin = site.plugin()
    for price in (5, 15):
        text = f"I bought the red lamp for {price} euro."
        stored = plugin.tool("memory_store", {"text": text, "tags": ["shop"], "metadata": {"price": price}})
        assert not stored.failed, stored.text
    where = {"tags": "shop", "price": {"gt": 10}}
    for name, arguments in (
        ("memory_search", {"query": "red lamp bought", "minScore": 0}),
        ("memory_list", {}),
    ):
        answer = plugin.tool(name, arguments | {"where": where})
        assert "for 15 euro" in answer.text
        assert "for 5 euro" not in answer.text
    refused = plugin.tool("memory_search", {"query": "lamp", "where": {"price": {"near": 1}}})
    assert refused.failed
    assert "where: price: has an unknown operator" in refused.text
