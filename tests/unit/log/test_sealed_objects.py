import pytest
from log_world import ACCOUNT, OTHER_ACCOUNT, World

from relayer.domain.namespace import MANIFEST_FORMAT, Custody, Keyring, Manifest, Pointer, PointerState
from relayer.errors import CorruptNamespace, UpgradeRequired
from relayer.log.objects import Layout, ObjectLocation, ObjectSealer
from relayer.wire.sealing import ObjectType

ONE, TWO = b"1" * 16, b"2" * 16
POINTER = Pointer(ONE, Custody.AGENT, PointerState.LIVE, "research", 0, 1)


@pytest.fixture
def sealer(empty_world: World) -> ObjectSealer:
    return ObjectSealer(empty_world.ports())


def test_a_pointer_opens_under_its_own_account_and_key_alone(sealer: ObjectSealer) -> None:
    key, other = Layout.pointer("a", "n"), Layout.pointer("a", "m")
    sealed = sealer.seal_pointer(ACCOUNT, key, POINTER)

    assert sealer.unseal_pointer(ACCOUNT, key, sealed) == POINTER
    with pytest.raises(CorruptNamespace):
        sealer.unseal_pointer(OTHER_ACCOUNT, key, sealed)
    with pytest.raises(CorruptNamespace):
        sealer.unseal_pointer(ACCOUNT, other, sealed)


def test_a_manifest_and_a_keyring_do_not_open_in_another_incarnation(sealer: ObjectSealer) -> None:
    manifest, keyring = Manifest(MANIFEST_FORMAT), Keyring(b"s" * 32, b"k" * 16, b"c" * 32)
    sealed_manifest = sealer.seal_manifest(ACCOUNT, ONE, Layout.manifest(ONE), manifest)
    sealed_keyring = sealer.seal_keyring(ACCOUNT, ONE, Layout.keyring(ONE), keyring)

    assert sealer.unseal_manifest(ACCOUNT, ONE, Layout.manifest(ONE), sealed_manifest) == manifest
    assert sealer.unseal_keyring(ACCOUNT, ONE, Layout.keyring(ONE), sealed_keyring) == keyring
    with pytest.raises(CorruptNamespace):
        sealer.unseal_manifest(ACCOUNT, TWO, Layout.manifest(TWO), sealed_manifest)
    with pytest.raises(CorruptNamespace):
        sealer.unseal_keyring(ACCOUNT, TWO, Layout.keyring(TWO), sealed_keyring)


def test_an_object_does_not_open_as_another_type(sealer: ObjectSealer) -> None:
    place = ObjectLocation(ObjectType.ENTRY, ACCOUNT, ONE, "k")
    with pytest.raises(CorruptNamespace):
        sealer.unseal(ObjectLocation(ObjectType.MANIFEST, ACCOUNT, ONE, "k"), sealer.seal(place, b"x"))


def test_equal_plaintexts_are_stored_as_different_bytes(sealer: ObjectSealer) -> None:
    place = ObjectLocation(ObjectType.ENTRY, ACCOUNT, ONE, "k")
    assert sealer.seal(place, b"x") != sealer.seal(place, b"x")


def test_a_manifest_of_a_newer_format_asks_for_an_upgrade(sealer: ObjectSealer) -> None:
    sealed = sealer.seal_manifest(ACCOUNT, ONE, "k", Manifest(MANIFEST_FORMAT + 1))
    with pytest.raises(UpgradeRequired):
        sealer.unseal_manifest(ACCOUNT, ONE, "k", sealed)
