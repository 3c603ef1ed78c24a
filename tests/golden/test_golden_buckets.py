"""What every format wrote is read by this version, as it was; and this version writes no other than it says.

One of these failing means that users' stores would be misread. If a format was changed on purpose: give it a new number,
keep reading the old one, and write its bucket with tests/golden/generate.py. A golden bucket itself is never changed.
"""

from __future__ import annotations

import json

import pytest
from golden_site import HERE, NAMESPACES, SECRET, copied, hears, open_site, read
from stored_fields import stored_fields

from relayer.domain.entry import ENTRY_VERSION
from relayer.domain.namespace import MANIFEST_FORMAT, Custody
from relayer.domain.segment_page import PAGE_FORMAT
from relayer.operator.verify import verify_store

FORMATS = [1]


@pytest.fixture(params=FORMATS)
def number(request) -> int:
    return request.param


@pytest.fixture
async def site(number, tmp_path):
    made = await open_site(copied(number, tmp_path))
    yield made
    await made.close()
    await made.store.close()


async def test_a_golden_bucket_says_what_it_said_when_it_was_written(site, number):
    expected = json.loads((HERE / f"format-{number}" / "expected.json").read_text())
    assert await read(site) == expected


async def test_a_golden_bucket_is_sound_inside_and_out(site):
    report = await verify_store(site.ports, secrets=[SECRET])
    assert report.sound
    assert [space.bodies is not None for space in report.namespaces] == [True] * len(NAMESPACES)


async def test_a_golden_bucket_goes_on(site):
    before = await hears(site, "researcher", Custody.AGENT)
    await site.say("the kettle was sold to a fridge")
    await site.compact(entries=1)
    assert await hears(site, "researcher", Custody.AGENT) == sorted(
        [*before, "the kettle was sold to a fridge"]
    )


def test_there_is_a_golden_bucket_of_every_format():
    assert MANIFEST_FORMAT in FORMATS
    assert (ENTRY_VERSION, PAGE_FORMAT) == (1, 1), (
        "a new version of entries or segments needs a golden bucket"
    )


def test_stored_fields_keep_their_place_and_new_ones_have_defaults(number):
    frozen = json.loads((HERE / f"format-{number}" / "fields.json").read_text())
    now = stored_fields()
    assert frozen.keys() <= now.keys(), "a stored type is gone or has another name"
    for name, fields in frozen.items():
        assert now[name][: len(fields)] == fields, f"{name}: fields that are stored have changed"
        added = now[name][len(fields) :]
        assert all(default != "required" for _, _, default in added), f"{name}: a new field needs a default"
