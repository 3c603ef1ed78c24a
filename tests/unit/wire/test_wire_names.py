from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.wire import names
from relayer.wire.codec import InvalidName
from relayer.wire.signing import grants


@pytest.mark.row("MW-36")
@pytest.mark.vectors("names", "normal")
def test_normal_forms_are_frozen(row):
    assert names.normalise(row["given"]) == row["normal"]


@pytest.mark.vectors("names", "invalid")
def test_a_name_without_a_normal_form_is_refused(row):
    with pytest.raises(InvalidName):
        names.normalise(row)


@pytest.mark.vectors("names", "namespaces")
def test_normal_namespaces_are_recognised(row):
    assert names.is_normal_namespace(row)


@pytest.mark.vectors("names", "not_namespaces")
def test_anything_else_is_no_namespace(row):
    assert not names.is_normal_namespace(row)


@pytest.mark.vectors("names", "grants")
def test_a_pattern_covers_exactly_what_it_says(row):
    assert grants(row["pattern"], row["namespace"]) == row["granted"]


@given(st.text(max_size=80))
def test_whatever_has_a_normal_form_is_normal_and_short(text):
    try:
        normal = names.normalise(text)
    except InvalidName:
        return
    assert names.is_normal(normal)
    assert len(normal) <= 101


@given(st.text(alphabet="abcXYZ09_- ", min_size=1, max_size=64))
def test_a_plain_name_is_its_own_normal_form(text):
    plain = text.strip().lower()
    if plain and " " not in plain:
        assert names.normalise(names.normalise(text)) == names.normalise(text) == plain


@given(st.text(min_size=1, max_size=30), st.text(min_size=1, max_size=30))
def test_a_hashed_name_is_never_a_plain_one(one, other):
    try:
        forms = names.normalise(one), names.normalise(other)
    except InvalidName:
        return
    if forms[0] == forms[1]:
        import unicodedata

        def fold(text):
            return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).strip().lower())

        assert fold(one) == fold(other)


def test_a_person_cannot_type_the_hashed_form_of_somebody_else():
    hashed = names.normalise("\u00fcn\u00efcode")
    assert names.normalise(hashed) != hashed


@pytest.mark.parametrize("count", [0, 5])
def test_a_namespace_has_one_to_four_parts(count):
    with pytest.raises(InvalidName):
        names.namespace(*["a"] * count)
    assert names.namespace("Researcher", "Sender-42") == "researcher/sender-42"


def test_a_plain_name_has_a_hashed_form_that_no_name_normalises_to():
    hashed = names.hashed("default")
    assert names.is_normal(hashed)
    assert names.is_hashed(hashed)
    assert names.normalise(hashed) != hashed
    assert names.as_shown(hashed) == hashed
    assert names.as_shown("Default ") == names.normalise("default") == "default"
    assert not names.is_hashed("_h_default")
