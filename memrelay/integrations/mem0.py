"""The interface of mem0's ``Memory``, version 2, over memrelay: the same arguments and the same shapes of results.

Example:
    from memrelay.integrations.mem0 import Memory

    memory = Memory()
    memory.add("I'm allergic to peanuts", user_id="ana", metadata={"ticket": 4711}, infer=False)
    memory.search("what must I not cook?", filters={"user_id": "ana"})["results"]

``user_id`` is a memrelay user with memories of its own, ``run_id`` the session, and ``agent_id`` a field of the metadata. An id
contains the user. An update has a new id; the ids of all versions name the memory. Deleted memories can be restored by
`memrelay.Memory.restore`. The arguments that need mem0's own language model or reranker are not accepted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final, Self

import memrelay
from memrelay import InvalidInput, RelayerRefused, StoredMemory

__all__ = ["Memory"]

_AGENT: Final = "agent_id"
_ROLE: Final = "role"
_SAME: Final = ("eq", "in", "gt", "gte", "lt", "lte")
_NEGATED: Final = {"ne": "eq", "nin": "in"}
_GROUPS: Final = {"AND": "and", "OR": "or"}


class Memory:
    """Memories with mem0's methods.

    Args:
        memory: the memories of the agent to use; None opens `memrelay.Memory` at its default settings.
    """

    def __init__(self, memory: memrelay.Memory | None = None) -> None:
        self._memory = memrelay.Memory() if memory is None else memory

    def add(
        self,
        messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        infer: bool = True,
    ) -> dict[str, Any]:
        """Add what is worth keeping of messages, or with ``infer=False`` the text of each message.

        Returns:
            ``{"results": [{"id": ..., "memory": ..., "event": "ADD"}]}``, without memories that were stored before; with
            ``infer=False`` each also has its ``role``.

        Raises:
            ValueError: an argument is invalid, or none of the ids is given.
        """
        _check_ids(user_id=user_id, agent_id=agent_id, run_id=run_id)
        fields = dict(metadata or {}) | ({} if agent_id is None else {_AGENT: agent_id})
        said: Any = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        said = [said] if isinstance(said, Mapping) else said
        where: dict[str, Any] = {"metadata": fields, "user": user_id, "session": run_id}
        for number, one in enumerate(said if isinstance(said, Sequence) else [said]):
            if not isinstance(one, Mapping) or not {_ROLE, "content"} <= one.keys():
                raise InvalidInput(f"messages[{number}]", "must be a mapping with role and content")
        if infer:
            added = [self._memory.add(said, **where)]
        else:
            added = [
                one
                for role, texts in groupby(said, key=itemgetter("role"))
                for one in self._memory.add_many(
                    [each["content"] for each in texts], **where | {"metadata": fields | {_ROLE: role}}
                )
            ]
        ids = [one for each in added if each.status != "duplicate" for one in each.ids]
        stored = [self._memory.get(one, user=user_id) for one in ids]
        return {
            "results": [
                {
                    "id": _id(one.id, user_id),
                    "memory": one.text,
                    "event": "ADD",
                    **({} if infer else {"actor_id": None, "role": one.metadata[_ROLE]}),
                }
                for one in stored
            ]
        }

    def search(
        self, query: str, *, top_k: int = 20, filters: Mapping[str, Any] | None = None, threshold: float = 0.1
    ) -> dict[str, Any]:
        """Search memories.

        Args:
            query: the text to search for.
            top_k: the maximum number of results.
            filters: at least one of ``user_id``, ``agent_id`` and ``run_id``, and conditions on metadata.
            threshold: the minimum score, from 0 to 1.

        Returns:
            ``{"results": [...]}``, the best first, each with its ``score``.

        Raises:
            ValueError: an argument is invalid.
        """
        user, where = _scope(filters)
        hits = self._memory.search(query, limit=top_k, min_score=threshold, where=where, user=user)
        return {"results": [_shown(hit, user) | {"score": hit.score} for hit in hits]}

    def get_all(self, *, filters: Mapping[str, Any] | None = None, top_k: int = 20) -> dict[str, Any]:
        """Return the newest memories that pass the filters, as in `search`; at most ``top_k``."""
        user, where = _scope(filters)
        return {
            "results": [_shown(one, user) for one in islice(self._memory.list(where=where, user=user), top_k)]
        }

    def get(self, memory_id: str) -> dict[str, Any] | None:
        """Return a memory; None if there is none or it was deleted."""
        found = self._newest(memory_id)
        return None if found is None or found[0].state != "live" else _shown(*found)

    def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        data: str | None = None,
    ) -> dict[str, str]:
        """Replace the text of a memory, or add fields to its metadata; ``data`` is the former name of ``text``.

        Raises:
            ValueError: there is no such memory, or an argument is invalid.
        """
        one, user = self._existing(memory_id)
        merged = None if metadata is None else one.metadata | dict(metadata)
        self._memory.update(one.id, data if text is None else text, metadata=merged, user=user)
        return {"message": "Memory updated successfully!"}

    def delete(self, memory_id: str) -> dict[str, str]:
        """Hide a memory; unlike in mem0, its text remains stored until it is erased.

        Args:
            memory_id: the memory's id.

        Returns:
            mem0's confirmation, ``{"message": ...}``.

        Raises:
            ValueError: there is no such memory, or it is deleted already.
        """
        one, user = self._existing(memory_id)
        self._memory.delete(one.id, user=user)
        return {"message": "Memory deleted successfully!"}

    def delete_all(
        self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> dict[str, str]:
        """Delete the memories with all of these ids, without ``user_id`` those of every user; raises `ValueError` if none is given."""
        ids = {"user_id": user_id, "agent_id": agent_id, "run_id": run_id}
        user, where = _scope({name: value for name, value in ids.items() if value is not None})
        for each in (None, *self._memory.users()) if user is None else (user,):
            self._memory.delete_all(where=where, user=each)
        return {"message": "Memories deleted successfully!"}

    def history(self, memory_id: str) -> list[dict[str, Any]]:
        """Return the changes of a memory, oldest first; an empty list if there is none."""
        version, user = _parts(memory_id)
        rows: list[dict[str, Any]] = []
        for one in self._versions(version, user):
            old = rows[-1]["new_memory"] if rows else None
            rows.append(_change(memory_id, one, old, "UPDATE" if rows else "ADD"))
            if one.state == "forgotten":
                rows.append(
                    _change(memory_id, one, one.text, "DELETE") | {"new_memory": None, "is_deleted": True}
                )
        return [row | {"created_at": rows[0]["created_at"]} for row in rows]

    def close(self) -> None:
        """Close the connection to the relayer."""
        self._memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _versions(self, version: str, user: str | None) -> tuple[StoredMemory, ...]:
        try:
            return self._memory.history(version, user=user)
        except RelayerRefused as error:
            if error.code == "not_found":
                return ()
            raise

    def _newest(self, memory_id: str) -> tuple[StoredMemory, str | None] | None:
        version, user = _parts(memory_id)
        known = [one for one in self._versions(version, user) if one.state != "superseded"]
        return (known[-1], user) if known else None

    def _existing(self, memory_id: str) -> tuple[StoredMemory, str | None]:
        found = self._newest(memory_id)
        if found is None or found[0].state != "live":
            raise InvalidInput("memory_id", "no memory has this id")
        return found


def _id(version: str, user: str | None) -> str:
    return version if user is None else f"{version}:{user}"


def _parts(memory_id: str) -> tuple[str, str | None]:
    version, colon, user = memory_id.partition(":")
    return version, user if colon else None


def _check_ids(**ids: str | None) -> None:
    if not any(value is not None for value in ids.values()):
        raise InvalidInput("user_id", "give at least one of user_id, agent_id and run_id")


def _scope(filters: Mapping[str, Any] | None) -> tuple[str | None, dict[str, Any] | None]:
    """Return the user and the filter of memrelay for mem0's filters."""
    given = dict(filters or {})
    _check_ids(**{name: given.get(name) for name in ("user_id", _AGENT, "run_id")})
    user = given.pop("user_id", None)
    return user, _filter(given) or None


def _filter(given: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, condition in given.items():
        if key == "user_id":
            raise InvalidInput(
                "filters",
                "user_id must be at the top level of the filters, because users are isolated from each other",
            )
        if key in _GROUPS:
            made[_GROUPS[key]] = [_filter(one) for one in condition]
        elif key == "NOT":
            made["not"] = {"or": [_filter(one) for one in condition]}
        else:
            made["session" if key == "run_id" else key] = _condition(key, condition)
    return made


def _condition(key: str, condition: Any) -> Any:
    if not isinstance(condition, Mapping):
        if condition == "*":
            raise InvalidInput(f"filters.{key}", "wildcards are not supported")
        return condition
    conditions: dict[str, Any] = {}
    for name, operand in condition.items():
        if name in _NEGATED:
            conditions["not"] = {_NEGATED[name]: operand}
        elif name in _SAME:
            conditions[name] = operand
        else:
            raise InvalidInput(f"filters.{key}", f"operator {name} is not supported")
    return conditions


def _shown(one: StoredMemory, user: str | None) -> dict[str, Any]:
    """Return a memory as mem0 shows it."""
    fields = dict(one.metadata)
    ids = {
        "user_id": user,
        _AGENT: fields.pop(_AGENT, None),
        "run_id": one.session or None,
        _ROLE: fields.pop(_ROLE, None),
    }
    return {
        "id": _id(one.id, user),
        "memory": one.text,
        "hash": hashlib.md5(one.text.encode(), usedforsecurity=False).hexdigest(),
        "created_at": one.created_at.isoformat(),
        "updated_at": one.created_at.isoformat(),
        **{name: value for name, value in ids.items() if value is not None},
        **({"metadata": fields} if fields else {}),
    }


def _change(memory_id: str, one: StoredMemory, old: str | None, event: str) -> dict[str, Any]:
    at = one.created_at.isoformat()
    return {
        "id": one.id,
        "memory_id": memory_id,
        "old_memory": old,
        "new_memory": one.text,
        "event": event,
        "created_at": at,
        "updated_at": at,
        "is_deleted": False,
        "actor_id": None,
        "role": one.metadata.get(_ROLE),
    }
