import pytest

from relayer.log.objects import Layout
from relayer.ports import check_key

INCARNATION = bytes(range(16))


def test_every_key_is_one_that_every_store_keeps_apart() -> None:
    layout = Layout("prod/memrelay")
    for key in (
        layout.relayer(),
        layout.fleet("20260102"),
        layout.account("ab" * 20),
        layout.pointer("ab" * 20, "cd" * 20),
        layout.keyring(INCARNATION),
        layout.manifest(INCARNATION),
        layout.entry(INCARNATION, 1),
    ):
        assert check_key(layout.store_key(key)) == "prod/memrelay/" + key


def test_the_order_of_slot_keys_is_the_order_of_the_log() -> None:
    keys = [Layout.entry(INCARNATION, seq) for seq in (9, 10, 99, 2**40)]
    assert keys == sorted(keys)


def test_a_pointer_lies_below_what_lists_its_account() -> None:
    assert Layout.pointer("a1", "b2").startswith(Layout.pointers("a1"))
    assert not Layout.pointer("a12", "b2").startswith(Layout.pointers("a1"))


def test_without_a_prefix_the_key_is_the_whole_key() -> None:
    assert Layout().store_key("relayer") == "relayer"


@pytest.mark.parametrize("prefix", ["/", "a/", "/a", "A", "a//b", "a b"])
def test_a_prefix_that_is_no_key_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError):
        Layout(prefix)
