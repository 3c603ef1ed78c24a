"""Every signed route, in one table: what the OpenAPI document describes is what is served."""

from __future__ import annotations

from relayer.http.account import AccountRoutes
from relayer.http.answers import AnswerRoutes
from relayer.http.erasing import ErasureRoutes
from relayer.http.life import LifeRoutes
from relayer.http.memories import MemoryRoutes
from relayer.http.overview import OverviewRoutes
from relayer.http.routing import Route
from relayer.http.transfer import TransferRoutes
from relayer.http.turns import TurnRoutes
from relayer.services.accounts import Accounts
from relayer.services.context import Context
from relayer.services.quotas import Quotas

__all__ = ["signed_routes"]


def signed_routes(context: Context, accounts: Accounts, quotas: Quotas) -> tuple[Route, ...]:
    """Return the routes under ``/v1``. Costs follow the work: an extraction is about five searches, and nothing is free.

    Args:
        context: for the use cases.
        accounts: keeps revocations.
        quotas: what accounts may keep.
    """
    groups = (
        MemoryRoutes(context),
        TurnRoutes(context),
        AccountRoutes(context, accounts, quotas),
        OverviewRoutes(context),
        TransferRoutes(context),
        LifeRoutes(context),
        ErasureRoutes(context),
        AnswerRoutes(context),
    )
    return tuple(route for group in groups for route in group.table())
