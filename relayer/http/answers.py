"""The routes where a language model reads the memories."""

from __future__ import annotations

from relayer.http.route_group import RouteGroup
from relayer.http.routing import Call, Reply, Route
from relayer.services.active_recall import active_recall
from relayer.services.ask import ask
from relayer.wire import answers
from relayer.wire.certificates import Right

__all__ = ["AnswerRoutes"]

# A model thinks for as long as its reader waits: the gateway's deadline decides, up to its longest setting.
MODEL_SECONDS = 120.0


class AnswerRoutes(RouteGroup):
    """The signed routes under ``/v1`` that ask a model; whoever goes away takes the question with them."""

    def table(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(
                "POST",
                "/v1/active-recall",
                self._active_recall,
                "What to remind an assistant of before it answers; may be nothing.",
                answer=answers.ActiveRecallResponse,
                body=answers.ActiveRecallRequest,
                right=Right.READ,
                cost=5.0,
                seconds=MODEL_SECONDS,
                ends_with_caller=True,
            ),
            Route(
                "POST",
                "/v1/ask",
                self._ask,
                "Answer a question from memories alone, with citations.",
                answer=answers.AskResponse,
                body=answers.AskRequest,
                right=Right.READ,
                cost=5.0,
                seconds=MODEL_SECONDS,
                ends_with_caller=True,
            ),
        )

    async def _active_recall(self, call: Call) -> Reply:
        request = call.body_as(answers.ActiveRecallRequest)
        return Reply.of(await active_recall(self._context, call.access, request, call.deadline))

    async def _ask(self, call: Call) -> Reply:
        request = call.body_as(answers.AskRequest)
        return Reply.of(await ask(self._context, call.access, request, call.deadline))
