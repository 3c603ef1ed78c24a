"""What a namespace is, in a dictionary: the rules of docs/protocol.md without a log, a store or a second process."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Memory", "Model"]


@dataclass
class Memory:
    """One memory; ``ends`` in ms since the epoch."""

    id: str
    text: str
    ends: int | None = None
    state: str = "live"
    superseded_by: str | None = None
    supersedes: str | None = None
    reinforced: int = 0

    def shown(self, now: int) -> bool:
        return self.ends is None or self.ends > now


@dataclass
class Model:
    """All memories by id, in the order in which they came to be."""

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
        self.add(memory, text, ends)
        return "stored"

    def add(self, memory: str, text: str, ends: int | None = None) -> None:
        self.memories[memory] = Memory(memory, text, ends)
        self.newest[text] = memory

    def forget(self, memory: str) -> str:
        """Return what a person is told who asks for it."""
        found = self.memories.get(memory)
        if found is None:
            return "not_found"
        if found.state == "superseded":
            return "stale_head"
        found.state = "forgotten"
        return "forgotten"

    def supersede(self, head: str, memory: str, text: str) -> str:
        found = self.memories.get(head)
        if found is None:
            return "not_found"
        if found.state != "live":
            return "stale_head"
        found.state, found.superseded_by = "superseded", memory
        self.add(memory, text)
        self.memories[memory].supersedes = head
        return "superseded"

    def head_of(self, memory: str) -> str:
        """Return the newest version of a memory."""
        seen = {memory}
        while (found := self.memories.get(memory)) is not None and found.superseded_by not in {None, *seen}:
            memory = str(found.superseded_by)
            seen.add(memory)
        return memory

    def restore(self, memory: str, head: str) -> str:
        found = self.memories.get(memory)
        if found is None:
            return "not_found"
        if found.state == "live":
            return "stale_head"
        if found.state == "superseded":
            current = self.memories.get(head)
            if current is None or current.state != "live":
                return "stale_head"
            current.state, current.superseded_by = "superseded", memory
        found.state, found.superseded_by = "live", None
        self.newest[found.text] = memory
        return "restored"

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
