"""What a host's session key says about a turn: which agent, who listens, what kind of run; and which agent a name means.

A session key is public: logged by hosts, guessable, partly chosen by users. It *selects* an agent and is never the
source of a key. Shapes understood, with ``<id>`` an agent's name::

    agent:<id>:<session>                                  agent:researcher:uuid-456
    agent:<id>:main                                       the agent's direct conversation
    agent:<id>:<platform>[:<account>]:<type>:<chat>[...]  type: direct dm group channel ...
    ...:thread:<tid>   ...:topic:<n>                      a thread of the above
    ...:subagent:<uuid>   ...:active-memory:<hex>   ...:memory-capture:...
    main:<uuid>   cron:<id>   hook:<uuid>   <platform>:<chat>      no agent named: the default one

A key that names a platform and no type of chat leaves open who is there. Both ways out of that doubt keep quiet: what may
be said there is what a group may hear, and what is said there is not repeated to groups.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway_plugin.errors import IdentityError
from relayer.wire import names
from relayer.wire.errors import InvalidName
from relayer.wire.schemas import AudienceName

MAX_SESSION_KEY_CHARS: Final = 512
DEFAULT_AGENT: Final = "main"
"""The host's own name for its default agent; its memories live in the default namespace (MW-05)."""

DEFAULT_NAME: Final = "default"
"""The name by which keys and namespaces know the host's default agent, and no other."""

OWNER: Final = "memrelay-owner"
"""The name under which a person acts; no host's agent may have it."""


class Audience(StrEnum):
    """Who can read the answer of a turn."""

    DIRECT = "direct"
    GROUP = "group"
    CHANNEL = "channel"


class RunKind(StrEnum):
    """What started a run, as far as its session key tells."""

    MAIN = "main"
    SUBAGENT = "subagent"
    ACTIVE_MEMORY = "active_memory"
    CRON = "cron"
    HEARTBEAT = "heartbeat"
    MEMORY_CAPTURE = "memory_capture"
    HOOK = "hook"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRef:
    """A parsed session key.

    Attributes:
        key: the key as given.
        agent: the agent's name as spelled in the key, not normalised; None for the host's default agent, whether the
            key says ``main`` or names none.
        is_main: the key names the default agent: nobody else may speak in its place.
        audience: who reads the answer: as the key says; a group where it names a platform and no type of chat; direct
            where it names neither. A host that knows the chat's type better overrides it.
        said_to: to whom what is said there was said: the same, but direct where the key leaves it open.
        run: what started the run.
        platform: the messaging platform, when the key names a chat on one.
        chat: the platform's id of the chat, when the key names one.
        thread: the id of the thread or topic, when the key names one.
    """

    key: str
    agent: str | None
    audience: Audience
    said_to: Audience
    run: RunKind
    is_main: bool = False
    platform: str | None = None
    chat: str | None = None
    thread: str | None = None

    @property
    def listed_as(self) -> str:
        """The name under which settings list this agent: ``main`` for the default agent."""
        return self.agent if self.agent is not None else DEFAULT_AGENT


def audience_name(audience: Audience | None) -> AudienceName:
    """Return the audience of a memory: None (no conversation with anybody) is the agent's own."""
    if audience is None:
        return "agent"
    return "direct" if audience is Audience.DIRECT else "group"


_AUDIENCE_WORDS: Final = {
    "direct": Audience.DIRECT,
    "dm": Audience.DIRECT,
    "private": Audience.DIRECT,
    "explicit": Audience.DIRECT,
    # The rest of such a key is chosen by the caller of the host's HTTP front: no word in it may change the audience.
    "openai-user": Audience.DIRECT,
    "group": Audience.GROUP,
    "supergroup": Audience.GROUP,
    "room": Audience.GROUP,
    "forum": Audience.GROUP,
    "thread": Audience.GROUP,
    "channel": Audience.CHANNEL,
    "broadcast": Audience.CHANNEL,
}
# What stands in a platform's place and is none. A terminal has one reader, and so has the caller of an HTTP front; the
# rest begin runs that no chat began.
_NO_PLATFORM: Final = frozenset(
    {
        "main",
        "cli",
        "api",
        "cron",
        "heartbeat",
        "hook",
        "dream",
        "subagent",
        "active-memory",
        "memory-capture",
    }
)
# Platform and account may stand before the word; further right, words belong to ids.
_AUDIENCE_REACH: Final = 3

_RUN_ANYWHERE: Final = {
    "active-memory": RunKind.ACTIVE_MEMORY,
    "memory-capture": RunKind.MEMORY_CAPTURE,
    "subagent": RunKind.SUBAGENT,
    "autonomic": RunKind.HEARTBEAT,
}
_RUN_FIRST: Final = {
    "cron": RunKind.CRON,
    "heartbeat": RunKind.HEARTBEAT,
    "hook": RunKind.HOOK,
    "dream": RunKind.MEMORY_CAPTURE,
    "announce": RunKind.OTHER,
}


def named(agent: str, *, shown: bool = False) -> str:
    """Return the normal name of an agent, from what its host, its program or a person calls it.

    Names that are the same once folded (case, width, spaces around them) are one agent's. ``main`` is `DEFAULT_NAME`; an agent that
    is called ``default`` is another, under a hashed name.

    Args:
        agent: the name.
        shown: a person may repeat a hashed name as it was shown. A host's agent that is called so could take another's place.

    Raises:
        IdentityError: it has none, is the owner's, or has the form of a hashed name.
    """
    if names.is_hashed(agent):
        if shown and names.is_normal(agent):
            return agent
        raise IdentityError(
            "a name that begins with _h_ and ends with a digest stands for another agent's name"
        )
    if _is_main(agent):
        return DEFAULT_NAME
    try:
        normal = names.normalise(agent)
    except InvalidName as error:
        raise IdentityError(f"{error}") from error
    if normal == OWNER:
        raise IdentityError(f"{OWNER} is the name of the account's owner, and no agent's")
    return names.hashed(normal) if normal == DEFAULT_NAME else normal


def typed(namespace: str) -> str:
    """Return a namespace as a person types it: the default agent is ``main``, and ``default`` another."""
    agent, slash, below = namespace.partition("/")
    return f"{DEFAULT_AGENT if agent == DEFAULT_NAME else agent}{slash}{below}"


def parse_session_key(key: str) -> SessionRef:
    """Parse a host's session key; an empty one (the host has none) is the default agent's.

    Raises:
        IdentityError: the key is not text, is longer than 512 characters, holds a control character, or spells an
            agent that is empty or hides invisible characters. The message never repeats the key.
    """
    _check(key)
    segments = [segment.strip() for segment in key.split(":")]
    if segments[0].lower() == "agent" and len(segments) > 1:
        agent: str | None = _agent(segments[1])
        rest = segments[2:]
    else:
        agent = None
        rest = segments
    main = agent is not None and _is_main(agent)
    words = [segment.lower() for segment in rest]
    told, platform, chat = _place(rest, words)
    open_to_doubt = told is None and len(words) > 1 and words[0] not in _NO_PLATFORM
    return SessionRef(
        key=key,
        agent=None if main else agent,
        is_main=main,
        audience=told or (Audience.GROUP if open_to_doubt else Audience.DIRECT),
        said_to=told or Audience.DIRECT,
        run=_run(words),
        platform=platform,
        chat=chat,
        thread=_thread(rest, words),
    )


def _is_main(name: str) -> bool:
    """Whether a name, however it is spelled, is that of the host's default agent."""
    return unicodedata.normalize("NFKC", name).strip().casefold() == DEFAULT_AGENT


def _check(key: object) -> None:
    if not isinstance(key, str):
        raise IdentityError("the session key is not text")
    if len(key) > MAX_SESSION_KEY_CHARS:
        raise IdentityError(
            f"the session key is {len(key)} characters long; at most {MAX_SESSION_KEY_CHARS} are accepted"
        )
    if any(unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"} for char in key):
        raise IdentityError(
            "the session key holds a control character, a line break or half a surrogate pair"
        )


def _agent(name: str) -> str:
    # Two names that look alike must not be told apart by what nobody sees.
    if any(unicodedata.category(char) == "Cf" for char in name):
        raise IdentityError("the session key's agent name holds an invisible character")
    if not name:
        raise IdentityError("the session key names an empty agent")
    return name


def _run(words: list[str]) -> RunKind:
    if words == [""]:
        return RunKind.OTHER
    for word, run in _RUN_ANYWHERE.items():
        if word in words:
            return run
    if any(word.startswith("dreaming-narrative-") for word in words):
        return RunKind.MEMORY_CAPTURE
    if words and words[-1] == "heartbeat":
        return RunKind.HEARTBEAT
    return _RUN_FIRST.get(words[0], RunKind.MAIN) if words else RunKind.MAIN


def _place(rest: list[str], words: list[str]) -> tuple[Audience | None, str | None, str | None]:
    for index, word in enumerate(words[:_AUDIENCE_REACH]):
        audience = _AUDIENCE_WORDS.get(word)
        if audience is not None:
            platform = rest[0] if index else None
            chat = rest[index + 1] if index + 1 < len(rest) else None
            return audience, platform or None, chat or None
    return None, None, None


def _thread(rest: list[str], words: list[str]) -> str | None:
    for mark in ("thread", "topic"):
        if mark in words[:-1]:
            return rest[words.index(mark) + 1] or None
    return None
