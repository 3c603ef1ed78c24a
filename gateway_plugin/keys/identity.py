"""The identity of a turn: its agent, its namespace and the keys for its requests, found from the host's session key.

`parse_session_key` takes the agent from the session key, and `identify` derives the namespace from the agent and the configured
scope. The language model cannot influence either.

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

import hashlib
import itertools
import secrets
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Final
from urllib.parse import quote

from gateway_plugin.errors import IdentityError
from gateway_plugin.keys.invitations import BACKDATED, Invitation
from relayer.wire import codec as base64url
from relayer.wire import names
from relayer.wire.codec import InvalidName, Malformed, NotAccepted
from relayer.wire.fields import Audience
from relayer.wire.sealing import FIRST_GENERATION, AgentKeys, RootKeys, derive, route
from relayer.wire.signing import SERIAL_SIZE, Certificate, Right

MAX_SESSION_KEY_CHARS: Final = 512
DEFAULT_AGENT: Final = "main"
"""The host's own name for its default agent; its memories live in the default namespace (MW-05)."""

DEFAULT_NAME: Final = "default"
"""The name by which keys and namespaces know the host's default agent, and no other."""

SHARED: Final = "shared"
"""The first part of the name of a namespace that belongs to no agent."""

OWNER: Final = "memrelay-owner"
"""The name under which a person acts; no host's agent may have it."""


class TurnAudience(StrEnum):
    """The readers of a turn's response."""

    DIRECT = "direct"
    GROUP = "group"
    CHANNEL = "channel"


class RunKind(StrEnum):
    """The cause of a run, as far as its session key tells."""

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
        is_main: the key names the default agent, and no other agent may speak for it.
        audience: who reads the answer: as the key says; a group where it names a platform and no type of chat; direct
            where it names neither. A host that knows the chat's type better overrides it.
        said_to: to whom what is said there was said: the same, but direct where the key leaves it open.
        run: what started the run.
        platform: the messaging platform, when the key names a chat on one.
        chat: the platform's id of the chat, when the key names one.
        peer: the person of a direct chat, when the host keeps direct chats apart and the key names one.
    """

    key: str
    agent: str | None
    audience: TurnAudience
    said_to: TurnAudience
    run: RunKind
    is_main: bool = False
    platform: str | None = None
    chat: str | None = None
    peer: str | None = None

    @property
    def listed_as(self) -> str:
        """The name under which settings list this agent: ``main`` for the default agent."""
        return self.agent if self.agent is not None else DEFAULT_AGENT


def audience_name(audience: TurnAudience | None) -> Audience:
    """Return the audience of a memory: None (no conversation with anybody) is the agent's own."""
    if audience is None:
        return Audience.AGENT
    return Audience.DIRECT if audience is TurnAudience.DIRECT else Audience.GROUP


_AUDIENCE_WORDS: Final = {
    "direct": TurnAudience.DIRECT,
    "dm": TurnAudience.DIRECT,
    "private": TurnAudience.DIRECT,
    "explicit": TurnAudience.DIRECT,
    # The rest of such a key is chosen by the caller of the host's HTTP front: no word in it may change the audience.
    "openai-user": TurnAudience.DIRECT,
    "group": TurnAudience.GROUP,
    "supergroup": TurnAudience.GROUP,
    "room": TurnAudience.GROUP,
    "forum": TurnAudience.GROUP,
    "thread": TurnAudience.GROUP,
    "channel": TurnAudience.CHANNEL,
    "broadcast": TurnAudience.CHANNEL,
}
# What comes after these is a person; after "explicit" and "openai-user" it is a conversation.
_PEER_WORDS: Final = frozenset({"direct", "dm", "private"})
# Words in the position of a platform that are none. A terminal has one reader, and so has the caller of an HTTP front; the
# rest begin runs that no chat began.
_NO_PLATFORM: Final = frozenset(
    {
        "main", "cli", "api", "cron", "heartbeat", "hook", "dream", "subagent", "active-memory", "memory-capture",
    }
)  # fmt: skip
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

    Names that are the same once folded (case, width, spaces around them) are one agent's. ``main`` is `DEFAULT_NAME`; an
    agent that is called ``default`` is another, under a hashed name. If ``shown``, a person may repeat a hashed name as it
    was shown; a host's agent that is called so could take another's place.

    Raises:
        IdentityError: it has none, is the owner's, or has the form of a hashed name.

    Example:
        >>> named("Researcher")
        'researcher'
    """
    if names.is_hashed(agent):
        if shown and names.is_normal(agent):
            return agent
        raise IdentityError(
            "a name that begins with _h_ and ends with a digest represents another agent's name"
        )
    if _is_main(agent):
        return DEFAULT_NAME
    try:
        normal = names.normalise(agent)
    except InvalidName as error:
        raise IdentityError(f"{error}") from error
    if normal == OWNER:
        raise IdentityError(f"{OWNER} is reserved for the owner of the account")
    return names.hashed(normal) if normal == DEFAULT_NAME else normal


def typed(namespace: str) -> str:
    """Return a namespace as a person types it: the default agent is ``main``, and ``default`` another.

    Example:
        >>> typed("researcher")
        'researcher'
    """
    agent, slash, below = namespace.partition("/")
    return f"{DEFAULT_AGENT if agent == DEFAULT_NAME else agent}{slash}{below}"


def parse_session_key(key: str) -> SessionRef:
    """Parse a host's session key; an empty one (the host has none) is the default agent's.

    Raises:
        IdentityError: the key is not text, is longer than 512 characters, holds a control character, or spells an
            agent that is empty or hides invisible characters. The message never repeats the key.

    Example:
        >>> ref = parse_session_key("agent:coder:telegram:group:-100123")
        >>> ref.agent, ref.audience
        ('coder', <TurnAudience.GROUP: 'group'>)
    """
    if not isinstance(key, str):
        raise IdentityError("the session key is not a string")
    if len(key) > MAX_SESSION_KEY_CHARS:
        raise IdentityError(
            f"the session key is {len(key)} characters long; at most {MAX_SESSION_KEY_CHARS} are accepted"
        )
    if any(unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"} for char in key):
        raise IdentityError("the session key contains a control character, a line break or a lone surrogate")
    segments = [segment.strip() for segment in key.split(":")]
    if segments[0].lower() == "agent" and len(segments) > 1:
        agent: str | None = segments[1]
        rest = segments[2:]
        # Two names that look alike must not be distinguished by invisible characters.
        if any(unicodedata.category(char) == "Cf" for char in segments[1]):
            raise IdentityError("the agent name in the session key contains an invisible character")
        if not agent:
            raise IdentityError("the agent name in the session key is empty")
    else:
        agent, rest = None, segments
    main = agent is not None and _is_main(agent)
    words = [segment.lower() for segment in rest]
    told, platform, chat = _place(rest, words)
    keeps_apart = told is TurnAudience.DIRECT and any(word in _PEER_WORDS for word in words[:_AUDIENCE_REACH])
    open_to_doubt = told is None and len(words) > 1 and words[0] not in _NO_PLATFORM
    return SessionRef(
        key=key,
        agent=None if main else agent,
        is_main=main,
        audience=told or (TurnAudience.GROUP if open_to_doubt else TurnAudience.DIRECT),
        said_to=told or TurnAudience.DIRECT,
        run=_run(words),
        platform=platform,
        chat=chat,
        peer=chat if keeps_apart else None,
    )


def _is_main(name: str) -> bool:
    """Return whether a name, in any spelling, is that of the host's default agent."""
    return unicodedata.normalize("NFKC", name).strip().casefold() == DEFAULT_AGENT


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


def _place(rest: list[str], words: list[str]) -> tuple[TurnAudience | None, str | None, str | None]:
    for index, word in enumerate(words[:_AUDIENCE_REACH]):
        audience = _AUDIENCE_WORDS.get(word)
        if audience is not None:
            platform = rest[0] if index else None
            chat = rest[index + 1] if index + 1 < len(rest) else None
            return audience, platform or None, chat or None
    return None, None, None


_MAX_ID: Final = 200


def platform_id(platform: str, name: str) -> str:
    """Return the id of a person or a chat as it is stored with memories: normalized, without white space or commas.

    The name may begin with the platform already.

    Example:
        >>> platform_id("Telegram", "777"), platform_id("telegram", "Telegram:777")
        ('telegram:777', 'telegram:777')
    """
    folded = unicodedata.normalize("NFKC", name).strip().casefold()
    where = platform.strip().casefold()
    known = f"{quote(where)}:{quote(folded.removeprefix(f'{where}:'), safe=':@+!#$*~')}"
    return known if len(known) <= _MAX_ID else f"hashed:{hashlib.sha256(known.encode()).hexdigest()}"


class NamespaceScope(StrEnum):
    """The property that separates one set of memories from another."""

    AGENT = "agent"
    AGENT_SENDER = "agent+sender"
    AGENT_WORKSPACE = "agent+workspace"


CERTIFICATE_SECONDS: Final = 24 * 3600
_RENEW_BEFORE_END: Final = 3600
_RIGHTS: Final = (Right.READ, Right.WRITE)
# Certificates of persons and for shared namespaces are valid for ten minutes; the latter are renewed two minutes before.
_SHORT_SECONDS: Final = 600
_RENEW_SHARE_BEFORE_END: Final = 120


def mint(
    root: RootKeys,
    agent: str,
    *,
    now: int,
    seconds: int = CERTIFICATE_SECONDS,
    rights: tuple[Right, ...] = _RIGHTS,
    owner: str | None = None,
) -> Certificate:
    """Say what an agent of this account may do: read and write its own namespace and those below it.

    ``owner`` is another agent, whose namespaces are meant. The certificate is valid for some ``seconds`` from ``now`` on, in
    seconds since the epoch.
    """
    whose = owner or agent
    return Certificate(
        account_key=bytes(root.account_identity.verify_key),
        agent=agent,
        agent_key=bytes(root.agent(agent).identity.verify_key),
        namespaces=(whose, f"{whose}/*"),
        rights=rights,
        not_before=max(now - BACKDATED, 0),
        not_after=now + seconds,
        serial=secrets.token_bytes(SERIAL_SIZE),
    )


class IssuedCertificates:
    """The certificates of one agent, issued with the account's keys: each is used until shortly before its end.

    Args:
        root: the keys of the account.
        mint: returns a new certificate for a time in seconds since the epoch.
        renew_before: how many seconds before its end a certificate is replaced, so that it does not expire while a request
            is under way. If this is its whole validity, each request has a certificate of its own.
    """

    def __init__(self, root: RootKeys, mint: Callable[[int], Certificate], *, renew_before: int) -> None:
        self._root = root
        self._mint = mint
        self._renew_before = renew_before
        self._certificate: Certificate | None = None
        self._header = ""

    def header(self, now: int) -> str:
        """Return the ``memory-certificate`` header for a time in seconds since the epoch."""
        known = self._certificate
        if known is None or not known.not_before <= now < known.not_after - self._renew_before:
            known = self._certificate = self._mint(now)
            self._header = base64url.encode(known.issue(self._root.account_identity))
        return self._header


_SHOWN_OF_ACCOUNT: Final = 10
_NOBODY: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NamespaceRef:
    """A namespace and whose it is: enough to find the keys again after a restart."""

    agent: str
    namespace: str
    generation: int


@dataclass(frozen=True, slots=True)
class SharedKeys:
    """The secrets of the namespaces that belong to no agent, which agents of the account share."""

    root: RootKeys = field(repr=False)

    def namespace_secret(self, namespace: str, generation: int) -> bytes:
        """Return the secret of such a namespace, ``shared/NAME``."""
        return self.root.shared_secret(namespace.partition("/")[2], generation)


@dataclass(frozen=True, slots=True)
class Identity:
    """Everything that a request of one agent on one namespace needs."""

    agent: str
    account: str
    namespace: str
    generation: int
    keys: AgentKeys = field(repr=False)
    credential: Credential = field(repr=False, compare=False)
    owner: AgentKeys | SharedKeys | Invitation | None = field(default=None, repr=False)
    """The keys that open the namespace, if they are not those of the agent that signs."""

    @property
    def is_guest(self) -> bool:
        """Return whether the namespace belongs to another account, which invited the agent."""
        return isinstance(self.owner, Invitation)

    @property
    def shown(self) -> str:
        """Return the namespace as a person types it; one of another account with the start of its id: ``coder@0x1a2b3c4d``."""
        account = f"@{self.account[:_SHOWN_OF_ACCOUNT]}" if self.is_guest else ""
        return typed(self.namespace) + account

    @property
    def ref(self) -> NamespaceRef:
        """The namespace, as it is kept."""
        return NamespaceRef(self.agent, self.namespace, self.generation)

    @property
    def namespace_secret(self) -> bytes:
        """The secret that opens the namespace."""
        return (self.owner or self.keys).namespace_secret(self.namespace, self.generation)

    @property
    def route(self) -> str:
        """Return the routing id of the namespace, which load balancers may see; see `relayer.wire.sealing.route`."""
        return route(self.namespace_secret)

    def certificate_header(self, now: int) -> str:
        """Return the ``memory-certificate`` header for a time in seconds since the epoch.

        Raises:
            IdentityError: the certificate has expired, and this host cannot issue another one.
        """
        return self.credential.header(now)


def _own(holder: KeyHolder, agent: str, namespace: str, generation: int = FIRST_GENERATION) -> Identity:
    keys, credential = holder.agent(agent), holder.credential(agent)
    return Identity(agent, holder.account, namespace, generation, keys, credential)


def identify_owner(holder: KeyHolder, renamed: Mapping[str, str], owner: NamespaceRef) -> Identity:
    """Return the identity that delivers the outbox items of an owner.

    If an agent's keys were rotated after a turn was captured, the turn goes to the new name.

    Raises:
        IdentityError: the agent's keys are not held.
    """
    agent = renamed.get(owner.agent, owner.agent)
    _, slash, below = owner.namespace.partition("/")
    return _own(holder, agent, f"{agent}{slash}{below}", owner.generation)


def identify(
    holder: KeyHolder,
    ref: SessionRef,
    *,
    default_agent: str | None = None,
    shown: bool = False,
    default_namespace: str = DEFAULT_NAME,
    profile: str = DEFAULT_NAME,
    scope: NamespaceScope = NamespaceScope.AGENT,
    sender: str | None = None,
    workspace: str | None = None,
    renamed: Mapping[str, str] = _NOBODY,
) -> Identity:
    """Return the identity of a turn.

    Args:
        holder: the keys at hand.
        ref: the parsed session key.
        default_agent: the speaker if the session key names no agent, as a host or a person calls it; None is the host's
            default agent: the one whose keys are held, where that is one alone.
        shown: ``default_agent`` may be a name as commands show it; see `named`.
        default_namespace: what sets the memories of the default agent apart from those of another gateway.
        profile: the host's profile, which sets the memories of every agent apart from those of other profiles.
        scope: what separates memories.
        sender: the host's id of the person who wrote, for scope ``agent+sender``.
        workspace: the host's id or path of the workspace, for scope ``agent+workspace``.
        renamed: agents that go by another name here, because their keys were rotated; both in normal form.

    Raises:
        IdentityError: a name has no normal form or is another agent's here, the scope lacks its half, or the agent's keys
            are not held.
    """
    spelled = ref.agent if ref.agent is not None or ref.is_main else default_agent
    try:
        usual = DEFAULT_NAME if spelled is None else named(spelled, shown=shown)
        parts = _scope_parts(scope, sender=sender, workspace=workspace)
        below, of_profile = _below("namespace", default_namespace), _below("profile", profile)
    except (InvalidName, IdentityError) as error:
        raise IdentityError(f"no namespace for this turn: {error}") from error
    if usual == DEFAULT_NAME:
        usual = holder.only_agent or DEFAULT_NAME
    agent = renamed.get(usual, usual)
    if agent == usual and agent in renamed.values():
        raise IdentityError(
            f"no namespace for this turn: {agent} is used in namespace.renamed as the new name of another agent; rotate that agent to a different name"
        )
    return _own(
        holder, agent, "/".join((agent, *(below if usual == DEFAULT_NAME else ()), *of_profile, *parts))
    )


def identities_before_split(identity: Identity) -> tuple[Identity, ...]:
    """Return the identities that an agent had before a default namespace, a profile or a scope split its memories, nearest first (MW-36)."""
    agent, *below = identity.namespace.split("/")
    fewer = (part for count in reversed(range(len(below))) for part in itertools.combinations(below, count))
    return tuple(replace(identity, namespace="/".join((agent, *parts))) for parts in fewer)


def _below(kind: str, name: str) -> tuple[str, ...]:
    if names.normalise(name) == DEFAULT_NAME:
        return ()
    return (names.normalise(f"{kind}-{name.strip()}"),)


def _scope_parts(scope: NamespaceScope, *, sender: str | None, workspace: str | None) -> tuple[str, ...]:
    if scope is NamespaceScope.AGENT:
        return ()
    kind, value = ("sender", sender) if scope is NamespaceScope.AGENT_SENDER else ("workspace", workspace)
    # Falling back to the agent's own namespace would show one person's memories to another.
    if not value or not value.strip():
        raise IdentityError(f"namespace.scope is {scope.value!r}, but the host did not name the {kind}")
    return (names.normalise(f"{kind}-{value.strip()}"),)


class RootHolder:
    """The keys of all agents of the account: holds the gateway's root secret."""

    only_agent: None = None

    def __init__(self, root: RootKeys) -> None:
        self.root = root
        self.account = root.account
        self.local_key = derive(root.root, "memrelay/v1/local")
        # Every turn asks for both.
        self.agent = cache(root.agent)
        self.credential = cache(self._credential)

    def _credential(self, agent: str) -> Credential:
        return IssuedCertificates(
            self.root, lambda now: mint(self.root, agent, now=now), renew_before=_RENEW_BEFORE_END - 1
        )

    def person(self, agent: str, namespace: str | None = None) -> Identity:
        """Return the account's owner, with every right on an agent's namespaces: for what a person typed, never for a turn.

        ``shared`` is the agent of the namespaces that belong to none.

        The owner signs with a key of its own, so that a revoked agent's memories are still the owner's. Each request has a
        certificate of its own, which is valid for ten minutes.
        """

        def mint_owner(now: int) -> Certificate:
            return mint(self.root, OWNER, now=now, seconds=_SHORT_SECONDS, rights=tuple(Right), owner=agent)

        return Identity(
            agent=OWNER,
            account=self.account,
            namespace=namespace or agent,
            generation=FIRST_GENERATION,
            keys=self.root.agent(OWNER),
            credential=IssuedCertificates(self.root, mint_owner, renew_before=_SHORT_SECONDS),
            owner=self._keys_of(agent),
        )

    def reader(self, agent: str, namespace: str, *, writes: bool) -> Identity:
        """Return an agent's identity for one namespace that is shared with it, with certificates for that namespace alone."""

        def mint_share(now: int) -> Certificate:
            rights = _RIGHTS if writes else (Right.READ,)
            own = mint(self.root, agent, now=now, seconds=_SHORT_SECONDS, rights=rights)
            return replace(own, namespaces=(namespace,))

        owner = namespace.partition("/")[0]
        return Identity(
            agent=agent,
            account=self.account,
            namespace=namespace,
            generation=FIRST_GENERATION,
            keys=self.root.agent(agent),
            credential=IssuedCertificates(self.root, mint_share, renew_before=_RENEW_SHARE_BEFORE_END),
            owner=self._keys_of(owner),
        )

    def _keys_of(self, owner: str) -> AgentKeys | SharedKeys:
        return SharedKeys(self.root) if owner == SHARED else self.root.agent(owner)


class AgentHolder:
    """The keys of one agent: holds its secret and the certificate that the gateway with the root secret issued.

    Attributes:
        not_after: when the certificate ends, in seconds since the epoch.
    """

    def __init__(self, keys: AgentKeys, certificate: Certificate, header: str) -> None:
        self.account = certificate.account
        self.only_agent = certificate.agent
        self.local_key = derive(keys.secret, "local")
        self._keys = keys
        self.not_after = certificate.not_after
        self._header = header

    @classmethod
    def parse(cls, secret: bytes, header: str) -> AgentHolder:
        """Check that secret and certificate belong together. Raises `IdentityError` if it is malformed, forged or another's."""
        try:
            certificate = Certificate.verify(base64url.decode(header.strip()))
        except (Malformed, NotAccepted) as error:
            raise IdentityError("MEMRELAY_AGENT_CERTIFICATE is not a valid certificate") from error
        keys = AgentKeys(certificate.agent, secret)
        if bytes(keys.identity.verify_key) != certificate.agent_key:
            raise IdentityError(
                "MEMRELAY_AGENT_SECRET and MEMRELAY_AGENT_CERTIFICATE belong to different agents"
            )
        return cls(keys, certificate, header.strip())

    def agent(self, agent: str) -> AgentKeys:
        """Return the agent's keys. Raises `IdentityError`: ``agent`` is another agent."""
        if agent != self.only_agent:
            raise IdentityError(f"this host holds the keys of agent {self.only_agent!r} only")
        return self._keys

    def credential(self, agent: str) -> Credential:
        """Return the certificate that was given; raises as `agent`."""
        self.agent(agent)
        return self

    def header(self, now: int) -> str:
        """Return the certificate. Raises `IdentityError`: it ran out."""
        if now > self.not_after:
            raise IdentityError(
                f"the certificate of agent {self.only_agent!r} has expired; create a new one with `memrelay-gateway keys export` on the host that has the root secret"
            )
        return self._header


def invited(keys: AgentKeys, invitation: Invitation) -> Identity:
    """Return an agent's identity for the namespace of another account that it was invited to."""
    return Identity(
        agent=keys.agent,
        account=invitation.certificate.account,
        namespace=invitation.namespace,
        generation=invitation.generation,
        keys=keys,
        credential=invitation,
        owner=invitation,
    )


Credential = IssuedCertificates | AgentHolder | Invitation
"""The source of an agent's certificates: issued here, given to this host, or issued by another account."""

KeyHolder = RootHolder | AgentHolder
"""The keys that this process holds: those of all agents of the account, or those of one agent."""
