"""What a namespace is, in a dictionary: the rules of docs/protocol.md without a log, a store or a second process."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Memory", "Model"]


@dataclass
class Memory:
    """One memory; times in ms since the epoch, ``changed`` that of its last change of state."""

    id: str
    text: str
    made: int
    ends: int | None = None
    pinned: bool = False
    state: str = "live"
    changed: int = 0
    superseded_by: str | None = None
    supersedes: str | None = None
    reinforced: int = 0

    def shown(self, now: int) -> bool:
        return self.ends is None or self.ends > now

    def stand(self, state: str, now: int) -> None:
        self.state, self.changed = state, now

    def held(self, at: int) -> bool:
        """Whether it was true at a time; a version that was brought back counts as true since it was said."""
        return self.made <= at and (
            self.state == "live" or (self.state == "superseded" and at < self.changed)
        )


@dataclass
class Model:
    """One life of a name: all its memories by id, in the order in which they came to be."""

    memories: dict[str, Memory] = field(default_factory=dict)
    # The newest memory of a text is the one that another of the same text is a duplicate of.
    newest: dict[str, str] = field(default_factory=dict)
    erased: set[str] = field(default_factory=set)

    def twin(self, text: str, ends: int | None, now: int) -> Memory | None:
        """Return the memory that a new one would only repeat: live, and not ending before the new one would."""
        found = self.memories.get(self.newest.get(text, ""))
        if found is None or found.state != "live" or not found.shown(now):
            return None
        lasts = found.ends is None or (ends is not None and ends <= found.ends)
        return found if lasts else None

    def put(self, memory: str, text: str, ends: int | None, now: int) -> str:
        """Take a memory under the id it was given; returns the status that its writer must have been told."""
        twin = self.twin(text, ends, now)
        if twin is not None:
            twin.reinforced += 1
            return "duplicate" if twin.id == memory else f"not a duplicate of {twin.id}"
        if memory in self.memories:
            return "not a duplicate"
        self.add(Memory(memory, text, now, ends))
        return "stored"

    def add(self, memory: Memory) -> None:
        self.memories[memory.id] = memory
        self.newest[memory.text] = memory.id

    def forget(self, memory: str, now: int) -> str:
        """Return what a person is told who asks for it."""
        found = self.memories.get(memory)
        if found is None:
            return "not_found"
        if found.state == "superseded":
            return "stale_head"
        if found.state == "live":
            found.stand("forgotten", now)
        return "forgotten"

    def supersede(
        self, head: str, memory: str, now: int, *, text: str | None = None, pinned: bool | None = None
    ) -> str:
        """Put a version in a memory's place; what is None stays as it was."""
        found = self.memories.get(head)
        if found is None:
            return "not_found"
        if found.state != "live":
            return "stale_head"
        found.stand("superseded", now)
        found.superseded_by = memory
        pinned = found.pinned if pinned is None else pinned
        self.add(Memory(memory, text or found.text, now, found.ends, pinned, supersedes=head))
        return "superseded"

    def head_of(self, memory: str) -> str:
        """Return the newest version of a memory."""
        seen = {memory}
        while (found := self.memories.get(memory)) is not None and found.superseded_by not in {None, *seen}:
            memory = str(found.superseded_by)
            seen.add(memory)
        return memory

    def restore(self, memory: str, now: int) -> str:
        found = self.memories.get(memory)
        if found is None:
            return "not_found"
        if found.state == "live":
            return "live"
        if found.state == "superseded":
            current = self.memories[self.head_of(memory)]
            if current.state != "live":
                return "stale_head"
            current.stand("superseded", now)
            current.superseded_by = memory
        found.stand("live", now)
        found.superseded_by = None
        self.newest[found.text] = memory
        return "live"

    def erase(self, memory: str) -> str:
        """Take a memory away with its earlier and later versions, and all that say the same as any of these."""
        if memory in self.erased:
            return "erased"
        if memory not in self.memories:
            return "not_found"
        gone = [memory]
        for one in gone:  # grows while it is read
            known = self.memories[one]
            others = [known.supersedes, known.superseded_by]
            others += [other.id for other in self.memories.values() if other.text == known.text]
            gone += [other for other in dict.fromkeys(others) if other in self.memories and other not in gone]
        for one in gone:
            self.newest.pop(self.memories.pop(one).text, None)
        self.erased.update(gone)
        return "erased"

    def shown(self, now: int) -> list[Memory]:
        """Return what a list of all states shows, newest first."""
        return [memory for memory in reversed(self.memories.values()) if memory.shown(now)]

    def recallable(self, now: int) -> set[str]:
        return {memory.text for memory in self.shown(now) if memory.state == "live"}

    def held(self, at: int, now: int) -> set[str]:
        """Return the texts that were true at a time, as far as that is still known."""
        return {memory.text for memory in self.shown(now) if memory.held(at)}
