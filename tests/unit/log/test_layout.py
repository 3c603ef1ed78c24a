from relayer.log.objects import Layout
from relayer.ports import check_key

INCARNATION = bytes(range(16))


def test_every_key_is_one_that_every_store_keeps_apart() -> None:
    for key in (
        Layout.relayer(),
        Layout.fleet("20260102"),
        Layout.account("ab" * 20),
        Layout.pointer("ab" * 20, "cd" * 20),
        Layout.keyring(INCARNATION),
        Layout.manifest(INCARNATION),
        Layout.entry(INCARNATION, 1),
    ):
        assert check_key(key) == key


def test_the_order_of_slot_keys_is_the_order_of_the_log() -> None:
    keys = [Layout.entry(INCARNATION, seq) for seq in (9, 10, 99, 2**40)]
    assert keys == sorted(keys)


def test_a_pointer_lies_below_what_lists_its_account() -> None:
    assert Layout.pointer("a1", "b2").startswith(Layout.pointers("a1"))
    assert not Layout.pointer("a12", "b2").startswith(Layout.pointers("a1"))
