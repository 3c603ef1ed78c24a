"""Putting the plugin's parts together from settings and environment; the command line and the plugin share it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, MutableMapping
from pathlib import Path

import aiohttp

from gateway_plugin.active import ActiveTraces
from gateway_plugin.calls.trust import TrustStore
from gateway_plugin.client import RelayerClient
from gateway_plugin.clock import Clock
from gateway_plugin.errors import IdentityError, SettingsError, SettingsIssue
from gateway_plugin.identity import KeyHolder
from gateway_plugin.keys import load_keys, secret_path, taken_variable
from gateway_plugin.local_relayer import is_wanted, recorded_url
from gateway_plugin.outbox.queue import Outbox, outbox_path
from gateway_plugin.private_files import config_directory, state_directory
from gateway_plugin.settings import PluginSettings, load_settings
from gateway_plugin.status import notify

IDENTITY_VARIABLE = "MEMRELAY_RELAYER_IDENTITY"


def settings_from(
    given: PluginSettings | Mapping[str, object] | None, environ: Mapping[str, str], *, url: str | None
) -> PluginSettings:
    """Return settings that are complete; ``url``, if given, wins over all others.

    Where nobody names a relayer, it is the one of this machine, at the address that it had last.

    Raises:
        SettingsError: names field and fix.
    """
    settings = given if isinstance(given, PluginSettings) else load_settings(given, environ)
    if url is None and is_wanted(settings):
        url = recorded_url(environ)
    return settings if url is None else settings.model_copy(update={"url": url})


def holder_for(
    settings: PluginSettings, environ: MutableMapping[str, str], *, secret: str | None = None
) -> KeyHolder:
    """Find the keys: a secret given in code, in the host's configuration, in the environment, or on disk.

    Raises:
        IdentityError: as `load_keys`.
    """
    if secret is None and settings.key is not None:
        secret = settings.key.get_secret_value()
    return load_keys(environ, given=secret, notify=notify)


def secret_source(settings: PluginSettings, environ: MutableMapping[str, str]) -> str:
    """Return where `holder_for` finds the keys, in words."""
    if settings.key is not None:
        return "the host's configuration (key)"
    return taken_variable() or str(secret_path(environ))


def connect(
    settings: PluginSettings,
    environ: Mapping[str, str],
    *,
    clock: Clock,
    http: aiohttp.ClientSession | None = None,
) -> RelayerClient:
    """Make a client; nothing is sent yet.

    Raises:
        SettingsError: the URL, or the identity that the environment demands of the relayer, is malformed.
    """
    return RelayerClient(
        settings.url,
        trust=TrustStore(config_directory(environ) / "trust.json"),
        relayer_identity=_relayer_identity(environ),
        clock=clock,
        http=http,
    )


def open_outbox(
    settings: PluginSettings, environ: Mapping[str, str], holder: KeyHolder | None, origin: str
) -> Outbox:
    """Return the durable outbox of a holder's keys and a relayer.

    One in memory where the settings say so, where memory is switched off (no holder), and where this user has no place for files.
    """
    if holder is None or not settings.capture.durable:
        return Outbox.in_memory()
    try:
        path = outbox_path(environ, holder, origin)
    except IdentityError as error:
        notify(f"memrelay: captured turns wait in memory only: {error}")
        return Outbox.in_memory()
    return Outbox(path, holder, notify=notify)


def shares_path(environ: Mapping[str, str]) -> Path:
    """Return the file that says which namespaces agents share; one that cannot be there where the user has no directory."""
    try:
        return config_directory(environ) / "shares.json"
    except IdentityError:
        return Path(os.devnull) / "shares.json"


def active_traces(settings: PluginSettings, environ: Mapping[str, str]) -> ActiveTraces | None:
    """Return where active mode is traced; None unless it was asked for.

    Raises:
        IdentityError: it was, and the user has no home directory.
    """
    if settings.disabled or not settings.active.persist_transcripts:
        return None
    return ActiveTraces(state_directory(environ), settings.active.transcript_dir)


def _relayer_identity(environ: Mapping[str, str]) -> bytes | None:
    text = environ.get(IDENTITY_VARIABLE, "").strip()
    if not text:
        return None
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        issue = SettingsIssue(
            IDENTITY_VARIABLE, "is no relayer identity", "give its 64 hexadecimal digits, or unset it"
        )
        raise SettingsError(issue)
    return bytes.fromhex(text)
