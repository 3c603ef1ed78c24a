"""The files of the host's agents: their places, the watcher that indexes them while the gateway runs, and reading by tools.

`project_lines` reads ``MEMORY.md`` for OpenClaw's block "Project Memory", which the system prompt has where an agent works in a
repository. OpenClaw asks for these lines without saying for which session. Only the agent's owner is told what ``MEMORY.md``
says, so there are lines only if each session whose prompt is made at that time is a direct chat of the owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any, Final

from gateway_plugin.errors import GatewayError, IdentityError, SettingsError
from gateway_plugin.hosting import (
    DEFAULT_AGENT,
    PROJECTS_APART,
    HostTurn,
    IndexedFile,
    IndexRoot,
    NotRead,
    RootKind,
    RunKind,
    Turn,
    TurnAudience,
    hashes_below,
    is_daily,
    is_private,
    named,
    notify,
    parse_session_key,
    read_below,
    read_markdown,
)
from gateway_plugin.hosts.openclaw.config import (
    HostConfig,
    config_path,
    extra_places,
    read_config,
    state_folder,
)
from gateway_plugin.hosts.openclaw.sessions import Compressed, EarlierSessions
from gateway_plugin.hosts.openclaw.turns import HOST, Json, session_key_of
from gateway_plugin.plugin import AsyncMemoryPlugin
from relayer.wire.calls import doubled
from relayer.wire.labels import PROJECTS
from relayer.wire.redaction import redact

EVERY: Final = 2.0
"""Minimum seconds between two scans of the files."""
_SLOWEST: Final = 60.0
_SETTLES: Final = 0.5
_MAX_BYTES: Final = 4 * 1024 * 1024
_MAX_AGENTS: Final = 200
TEMPLATES_VARIABLE: Final = "MEMRELAY_OPENCLAW_TEMPLATES"
"""The variable in which the host's plugin passes the folder of the files that the host writes into a new workspace."""

_PROFILE: Final = "USER.md"
_PROFILE_CHARS: Final = 4_000
_OTHERS_IN_PROMPT: Final = ("AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "HEARTBEAT.md", "BOOTSTRAP.md")


@dataclass(frozen=True, slots=True)
class AgentPlaces:
    """The places of an agent's files.

    Attributes:
        roots: the indexed parts of the workspace, and indexed places outside of it.
        mirrors: whether direct conversations are written into its daily notes, which are private in that case.
        sessions: whether the host's memory search covers its sessions.
        groups: whether it was set to cover them, which includes those of groups and channels.
        apart: whether the host keeps direct chats apart.
    """

    agent: str
    workspace: Path
    roots: tuple[IndexRoot, ...]
    mirrors: bool = False
    sessions: bool = False
    groups: bool = False
    apart: bool = False

    def read(self, path: str, *, private: bool) -> str | None:
        """Return the text of an indexed file; None if there is no such file.

        Files for direct conversations only need ``private``.
        """
        for root, below in self._candidates(path):
            file = root.path / below if below.parts else root.path
            kept = is_private(root, file) or (self.mirrors and is_daily(root.name_of(file)))
            if not root.holds(file) or (kept and not private):
                continue
            with contextlib.suppress(NotRead, UnicodeDecodeError):
                folder, name = (root.path, below) if below.parts else (root.path.parent, root.path.name)
                return read_below(folder, name, most=_MAX_BYTES).decode()
        return None

    def _candidates(self, path: str) -> Iterator[tuple[IndexRoot, PurePosixPath]]:
        """Yield the roots that may contain a path, each with the path below it. Opening refuses paths that leave the root."""
        asked = PurePosixPath(path)
        for root in self.roots:
            real = PurePosixPath(root.path.as_posix())
            # A path may be relative to the workspace, as it is cited, or absolute.
            for given in (asked, PurePosixPath(self.workspace.as_posix()) / asked):
                if given.is_relative_to(real) and given.is_absolute():
                    yield root, given.relative_to(real)
            if root.kind is not RootKind.WORKSPACE and asked.parts[:1] == (real.name,):
                yield root, PurePosixPath(*asked.parts[1:])


def places_of(
    config: HostConfig, environ: Mapping[str, str], *, more: tuple[str, ...] = ()
) -> list[AgentPlaces]:
    """Return the places of every agent whose memory search is not switched off.

    ``more`` are paths from the plugin's own settings, in the form of the host's ``extraPaths``.
    """
    found = []
    for agent in config.agents[:_MAX_AGENTS]:
        searches = config.searches(agent)
        if searches and searches[-1].get("enabled") is False:
            continue
        workspace = config.workspace(agent, environ)
        roots = _roots(workspace, [*more, *config.extra_paths(agent)], environ)
        found.append(
            AgentPlaces(
                agent,
                workspace,
                roots,
                sessions=config.remembers_sessions(agent),
                groups=config.searches_sessions(agent),
                apart=config.keeps_people_apart,
            )
        )
    return found


def _roots(workspace: Path, extra: Iterable[object], environ: Mapping[str, str]) -> tuple[IndexRoot, ...]:
    templates = environ.get(TEMPLATES_VARIABLE)
    own = _earlier_templates() | (hashes_below(Path(templates)) if templates else frozenset())
    roots = [IndexRoot(RootKind.WORKSPACE, named(workspace), "", own)] if workspace.is_dir() else []
    roots += [
        IndexRoot(RootKind.NOTES, named(path), pattern, own)
        for path, pattern in extra_places(workspace, extra, environ)
    ]
    return tuple(dict.fromkeys(roots))


@cache
def _earlier_templates() -> frozenset[str]:
    """Return hashes of the texts that earlier versions of the host wrote into a workspace, which stay there after an update."""
    text = (files("gateway_plugin.hosts.openclaw") / "templates.txt").read_text("ascii")
    return frozenset(word for line in text.splitlines() if not line.startswith("#") for word in line.split())


def agent_of(context: Json) -> str:
    """Return the host's id of the agent of a context."""
    with contextlib.suppress(IdentityError):
        ref = parse_session_key(session_key_of(context) or "")
        if ref.agent is not None:
            return ref.agent
    named = context.get("agentId")
    return named if isinstance(named, str) and named.strip() else DEFAULT_AGENT


class FileWatch:
    """Scans the files of every agent repeatedly while the gateway runs. Its errors never reach a turn."""

    def __init__(self, plugin: AsyncMemoryPlugin, environ: Mapping[str, str]) -> None:
        self._plugin = plugin
        self._environ = environ
        self._config: tuple[tuple[int, int], HostConfig] | None = None
        self._heard: dict[str, Path] = {}
        # By agent: the number of failed scans in a row, and the time before which the next one must not start.
        self._failed: dict[str, tuple[int, float]] = {}
        self._earlier: dict[str, EarlierSessions] = {}
        self._told: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start scanning, unless the settings disable it."""
        if self._plugin.settings.files.enabled and not self._plugin.settings.disabled:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="memrelay-files")

    async def aclose(self) -> None:
        """Stop scanning; the next gateway scans what is left."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def heard(self, context: Json) -> None:
        """Record an agent's workspace, which the host gives in the context of a hook."""
        workspace = context.get("workspaceDir")
        if isinstance(workspace, str) and workspace and len(self._heard) < _MAX_AGENTS:
            self._heard[agent_of(context)] = Path(workspace)

    def places(self) -> list[AgentPlaces]:
        """Return the places of every agent by the current configuration of the host."""
        more = self._plugin.settings.files.paths
        try:
            config = self._configuration()
        except SettingsError:
            # If only the host can read its configuration, the workspaces that turns named are used instead.
            return [
                AgentPlaces(agent, workspace, _roots(workspace, more, self._environ))
                for agent, workspace in self._heard.items()
            ]
        return places_of(config, self._environ, more=more)

    def places_of(self, context: Json) -> AgentPlaces | None:
        """Return the places of the agent of a context; None if they are not known, or files are not indexed."""
        if not self._plugin.settings.files.enabled:
            return None
        agent = agent_of(context)
        found = next((one for one in self.places() if one.agent == agent), None)
        mirrors = self._plugin.settings.capture.mirror_daily_log
        return None if found is None else replace(found, mirrors=mirrors)

    def prompted(self, context: Json, names: Sequence[str]) -> frozenset[str]:
        """Return which files of a workspace are in the system prompt as a whole.

        The host puts a file there up to a number of characters, and all of them together up to another.
        """
        with contextlib.suppress(SettingsError, OSError):
            agent, config = agent_of(context), self._configuration()
            always, of_one, of_all = config.prompt_limits(agent)
            workspace = self._heard.get(agent) or config.workspace(agent, self._environ)
            # The file of the user's profile gets less than the others.
            most = {
                name: min(of_one, _PROFILE_CHARS) if name.endswith(_PROFILE) else of_one for name in names
            }
            sizes = {name: _prompt_chars(workspace / name) for name in {*names, *_OTHERS_IN_PROMPT}}
            if always and sum(sizes.values()) <= of_all:
                return frozenset(name for name in names if 0 < sizes[name] <= most[name])
        return frozenset()

    def _configuration(self) -> HostConfig:
        status = None
        with contextlib.suppress(OSError):
            status = config_path(self._environ).stat()
        mark = (0, 0) if status is None else (status.st_mtime_ns, status.st_size)
        if self._config is None or self._config[0] != mark:
            self._config = (mark, read_config(self._environ))
        return self._config[1]

    async def _run(self) -> None:
        while True:
            begun = time.monotonic()
            try:
                found = await asyncio.to_thread(self.places)
            except OSError as error:
                self._tell(f"files of agents are not looked at: {error.strerror}")
                found = []
            more = [await self._look(places) for places in found]
            more += [await self._look_at_sessions(places) for places in found]
            # Scanning takes at most a tenth of the time, except while a long file is stored part by part.
            rest = 0.0 if any(more) else 9 * (time.monotonic() - begun)
            await asyncio.sleep(min(_SLOWEST, max(EVERY, rest)))

    async def _look(self, places: AgentPlaces) -> bool:
        """Scan the files of an agent; return whether the next scan continues a long file."""
        wanted, now = self._plugin.settings.recall.agents, time.monotonic()
        failures, until = self._failed.get(places.agent, (0, 0.0))
        if (wanted and places.agent not in wanted) or now < until:
            return False
        host = HostTurn(host=HOST, workspace=str(places.workspace))
        try:
            look = await self._plugin.look_at_files(
                places.roots,
                # This session is not that of any chat: only the gateway's switch ends scanning, not that of one chat.
                session_key=f"agent:{places.agent}:files",
                host=host,
                settled=_settled,
                notes=named(places.workspace) if places.workspace.is_dir() else None,
            )
        except GatewayError as error:
            self._failed[places.agent] = (failures + 1, now + doubled(EVERY, failures, _SLOWEST))
            self._tell(f"files of agent {places.agent} wait: {error}")
        except Exception as error:  # noqa: BLE001 - an error with one agent must not end the scans of the others
            self._failed[places.agent] = (failures + 1, now + _SLOWEST)
            self._tell(f"files of agent {places.agent} cannot be looked at ({type(error).__name__})")
        else:
            self._failed.pop(places.agent, None)
            for problem in look.problems:
                self._tell(problem)
            return look.more
        return False

    async def _look_at_sessions(self, places: AgentPlaces) -> bool:
        """Capture the next turns of an agent's earlier sessions; return whether there may be more."""
        settings = self._plugin.settings
        if not settings.capture.enabled:
            return False
        account = self._plugin.status().account
        known = self._earlier.get(places.agent)
        wanted = (account, places.groups, places.apart)
        if known is None or (known.account, known.groups, known.apart) != wanted:
            known = EarlierSessions(state_folder(self._environ), places.agent, *wanted)
            self._earlier[places.agent] = known
            # Also of sessions that are not covered yet: what is said from now on is not earlier, should they be covered later.
            await asyncio.to_thread(known.begin)
        if not (places.sessions and settings.files.sessions):
            return False
        try:
            return await known.look(self._plugin, places.workspace)
        except Compressed as error:
            self._tell(f"earlier sessions of agent {places.agent} wait: {error}")
        except Exception as error:  # noqa: BLE001 - an error with one agent must not end the scans of the others
            self._tell(
                f"earlier sessions of agent {places.agent} cannot be looked at ({type(error).__name__})"
            )
        return False

    def _tell(self, sentence: str) -> None:
        if sentence not in self._told and len(self._told) < _MAX_AGENTS:
            self._told.add(sentence)
            notify(f"memrelay: {sentence}")


def _prompt_chars(file: Path) -> int:
    """Return the length of a file as the host counts it, in units of UTF-16; 0 if it cannot be read."""
    try:
        if file.stat().st_size > _MAX_BYTES:
            return _MAX_BYTES
        return len(file.read_text("utf-8", "replace").rstrip().encode("utf-16-le")) // 2
    except OSError:
        return 0


def _settled(file: IndexedFile) -> bool:
    """Return whether a file was last changed a while ago: an editor that is still writing may have emptied it first."""
    return not 0 <= time.time() - file.mark[0] / 1e9 < _SETTLES


_MEMORY: Final = "MEMORY.md"


def project_lines(
    workspace: Path, projects: frozenset[str], sessions: Iterable[object], owners: frozenset[str]
) -> list[dict[str, Any]]:
    """Return lines in the form of the host's own memory, the first in the file first.

    A line is told if all repositories that it names are among ``projects``.
    """
    keys = [*sessions]
    if not keys or not all(_is_private(key, owners) for key in keys):
        return []
    try:
        text = read_below(workspace, _MEMORY).decode()
    except (NotRead, UnicodeDecodeError):
        return []
    found = []
    for item in read_markdown(text, _MEMORY, UTC):
        named = str(item.metadata.get(PROJECTS, "")).split(PROJECTS_APART)
        clean = redact(item.text)
        if named != [""] and projects.issuperset(named) and not clean.blocked:
            line, weight = int(item.source.reference.rpartition("#")[2]), item.metadata.get("importance")
            found.append(
                {
                    "path": _MEMORY,
                    "startLine": line,
                    "endLine": line,
                    "score": 0,
                    "snippet": clean.text,
                    "source": "memory",
                    "projectKey": ";".join(named),
                    **({} if weight is None else {"importance": weight}),
                }
            )
    return found


def _is_private(key: object, owners: frozenset[str]) -> bool:
    """Return whether a session is a direct chat of the owner, and not a run of which others may be told."""
    if not isinstance(key, str) or not key:
        return False
    try:
        ref = parse_session_key(key)
    except IdentityError:
        return False
    turn = Turn(session=ref, whose=IdentityError("of no namespace"), owners=owners)
    return ref.audience is TurnAudience.DIRECT and ref.run is RunKind.MAIN and turn.hearing.private
