"""The routes for erasing, which only a person may ask for: a certificate that grants ``admin``."""

from __future__ import annotations

from relayer.http.problems import unauthorized
from relayer.http.route_group import RouteGroup
from relayer.http.routing import Call, Reply, Route
from relayer.services.erase import erase_namespace, get_erasure
from relayer.wire.certificates import Right
from relayer.wire.erasure import EraseNamespaceRequest, EraseNamespaceResponse, ErasureView

__all__ = ["ErasureRoutes", "check_may_erase"]


def check_may_erase(call: Call) -> None:
    """Refuse what only a person may do; raises `HttpProblem`."""
    if not call.access.principal.may(call.access.namespace, Right.ADMIN):
        raise unauthorized("admin_not_granted")


class ErasureRoutes(RouteGroup):
    """The signed routes under ``/v1`` about erasures."""

    def table(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(
                "POST",
                "/v1/namespaces/erase",
                self._erase_namespace,
                "Erase a namespace; a dry run says what would go.",
                answer=EraseNamespaceResponse,
                body=EraseNamespaceRequest,
                right=Right.ADMIN,
                writes=True,
                cost=10.0,
            ),
            Route(
                "GET",
                "/v1/erasures/{id}",
                self._erasure,
                "How far an erasure is: erased, destroyed, confirmed.",
                answer=ErasureView,
                namespaced=False,
                right=Right.READ,
            ),
        )

    async def _erase_namespace(self, call: Call) -> Reply:
        request = call.body_as(EraseNamespaceRequest)
        return Reply.of(await erase_namespace(self._context, call.access, request, call.deadline))

    async def _erasure(self, call: Call) -> Reply:
        return Reply.of(await get_erasure(self._context, call.principal, call.parameter, call.deadline))
