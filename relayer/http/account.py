"""The routes about an account as a whole: its namespaces, what it keeps and may keep, and what it revoked."""

from __future__ import annotations

from relayer.errors import Refused
from relayer.http.queries import NamespacesQuery
from relayer.http.route_group import RouteGroup
from relayer.http.routing import Call, Reply, Route
from relayer.services.accounts import Accounts
from relayer.services.context import Context
from relayer.services.namespaces import list_namespaces
from relayer.services.quotas import Quotas
from relayer.wire import base64url
from relayer.wire.certificates import Right
from relayer.wire.errors import Malformed
from relayer.wire.revocations import RevocationsRequest, RevocationsResponse, RevocationsView
from relayer.wire.service import AccountResponse, NamespacesResponse, QuotaView

__all__ = ["AccountRoutes"]


class AccountRoutes(RouteGroup):
    """The signed routes that are about no namespace.

    Args:
        context: for the use cases.
        accounts: keeps revocations.
        quotas: what accounts may keep.
    """

    def __init__(self, context: Context, accounts: Accounts, quotas: Quotas) -> None:
        super().__init__(context)
        self._accounts = accounts
        self._quotas = quotas

    def table(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(
                "GET",
                "/v1/namespaces",
                self._namespaces,
                "The account's namespaces that the certificate covers.",
                answer=NamespacesResponse,
                query=NamespacesQuery,
                namespaced=False,
                right=Right.READ,
                # Each page opens up to a hundred pointers.
                cost=5.0,
            ),
            Route(
                "GET",
                "/v1/account",
                self._account,
                "What the account keeps, and what it may keep.",
                answer=AccountResponse,
                namespaced=False,
                right=Right.READ,
                cost=5.0,
            ),
            Route(
                "GET",
                "/v1/account/revocations",
                self._revocations,
                "The account's list of revocations, as it signed it.",
                answer=RevocationsView,
                namespaced=False,
                right=Right.ADMIN,
            ),
            Route(
                "PUT",
                "/v1/account/revocations",
                self._revoke,
                "Replace the account's list of revocations by a newer one.",
                answer=RevocationsResponse,
                body=RevocationsRequest,
                namespaced=False,
                right=Right.ADMIN,
                writes=True,
                cost=10.0,
            ),
        )

    async def _namespaces(self, call: Call) -> Reply:
        query = call.query_as(NamespacesQuery)
        answer = await list_namespaces(
            self._context, call.principal, limit=query.limit, cursor=query.cursor, deadline=call.deadline
        )
        return Reply.of(answer)

    async def _account(self, call: Call) -> Reply:
        account = call.principal.account
        quota = self._quotas.of(account)
        async with call.deadline.step("usage"):
            used = await self._quotas.used(account)
        return Reply.of(
            AccountResponse(
                account=account,
                bytes=QuotaView(used=used.amount.bytes, limit=quota.bytes or None),
                namespaces=QuotaView(used=len(used.namespaces), limit=quota.namespaces or None),
                memories=QuotaView(used=used.amount.memories, limit=quota.memories or None),
            )
        )

    async def _revocations(self, call: Call) -> Reply:
        async with call.deadline.step("revocations"):
            encoded = await self._accounts.revocations(call.principal.account)
        return Reply.of(RevocationsView(revocations=base64url.encode(encoded)))

    async def _revoke(self, call: Call) -> Reply:
        try:
            encoded = base64url.decode(call.body_as(RevocationsRequest).revocations)
        except Malformed as error:
            raise Refused("revocations_invalid", "revocations must be base64url of a signed list") from error
        principal = call.principal
        async with call.deadline.step("revoke"):
            revocations = await self._accounts.revoke(
                encoded, account=principal.account, address=principal.peer
            )
        return Reply.of(RevocationsResponse(counter=revocations.counter))
