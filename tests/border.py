"""The relayer of `relayer.testing` inside a test's own process, under the names that tests know it by."""

from dataclasses import replace

from relayer.testing.local_relayer import LocalRelayer as Border
from relayer.testing.local_relayer import SigningGateway
from relayer.testing.local_relayer import local_relayer as border
from relayer.wire import codec as base64url
from relayer.wire.signing import Revocations, Right

__all__ = ["Border", "border", "revocations_of", "revoke"]


def revocations_of(gateway: SigningGateway) -> bytes:
    """Return what takes a gateway's keys back, as its owner signs it."""
    account = gateway.root.account_identity
    return Revocations(bytes(account.verify_key), 1, (bytes(gateway.identity.verify_key),)).issue(account)


async def revoke(at: Border, gateway: SigningGateway) -> None:
    """Take a gateway's keys back, as its owner does."""
    admin = replace(gateway, agent="admin", rights=(Right.ADMIN,))
    body = {"revocations": base64url.encode(revocations_of(gateway))}
    answer = await at.call("PUT", "/v1/account/revocations", body, key=False, gateway=admin)
    assert answer.status_code == 200
