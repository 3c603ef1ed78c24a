"""Factories of the plugin's parts: settings, keys, client, outbox and files, created from settings and environment.

`gateway_plugin.plugin` and the command line both use these functions, so that they find the same keys and the same files.
None of them sends a request.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, MutableMapping
from pathlib import Path

import aiohttp

from gateway_plugin.calls.calling import BREAKER_SECONDS
from gateway_plugin.calls.clock import Clock
from gateway_plugin.calls.local_relayer import is_wanted, recorded_url
from gateway_plugin.calls.trust import IDENTITY_VARIABLE, TrustStore
from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import IdentityError, SettingsError, SettingsIssue
from gateway_plugin.keys.gateway_secret import load_keys, secret_path, taken_variable
from gateway_plugin.keys.identity import KeyHolder
from gateway_plugin.keys.private_files import config_directory, state_directory
from gateway_plugin.outbox.queue import Outbox, outbox_path
from gateway_plugin.recall.active import ActiveTraces
from gateway_plugin.settings.model import PluginSettings, load_settings
from gateway_plugin.turn.status import notify


def settings_from(
    given: PluginSettings | Mapping[str, object] | None, environ: Mapping[str, str], *, url: str | None
) -> PluginSettings:
    """Return complete settings.

    Args:
        given: the settings, or the host's configuration object for this plugin; None reads the environment alone.
        environ: the environment variables.
        url: the relayer's URL, which takes precedence over every other source. If neither it nor the settings name a
            relayer, the last URL of the local relayer is used.

    Raises:
        SettingsError: a setting is wrong; the message names it and the correction.
    """
    settings = given if isinstance(given, PluginSettings) else load_settings(given, environ)
    if url is None and is_wanted(settings):
        url = recorded_url(environ)
    return settings if url is None else settings.model_copy(update={"url": url})


def holder_for(
    settings: PluginSettings,
    environ: MutableMapping[str, str],
    *,
    secret: str | None = None,
    create: bool = True,
) -> KeyHolder:
    """Load the keys from the argument ``secret``, the host's configuration, the environment or the disk, in this order.

    If there are none, a secret is created if ``create`` is true.

    Raises:
        IdentityError: see `load_keys`.
    """
    if secret is None and settings.key is not None:
        secret = settings.key.get_secret_value()
    return load_keys(environ, given=secret, create=create, notify=notify)


def secret_source(settings: PluginSettings, environ: MutableMapping[str, str]) -> str:
    """Return a description of the source from which `holder_for` loads the secret."""
    if settings.key is not None:
        return "the host's configuration (key)"
    return taken_variable() or str(secret_path(environ))


def connect(
    settings: PluginSettings,
    environ: Mapping[str, str],
    *,
    clock: Clock,
    http: aiohttp.ClientSession | None = None,
    pause: float = BREAKER_SECONDS,
) -> RelayerClient:
    """Create a client of the relayer that the settings name. No request is sent yet.

    Raises:
        SettingsError: the URL is malformed, or the relayer identity in the environment is.
    """
    trust = TrustStore(config_directory(environ) / "trust.json")
    identity = environ.get(IDENTITY_VARIABLE, "").strip()
    if identity and not re.fullmatch(r"[0-9a-fA-F]{64}", identity):
        fix = "give its 64 hexadecimal digits, or unset it"
        raise SettingsError(SettingsIssue(IDENTITY_VARIABLE, "is no relayer identity", fix))
    return RelayerClient(
        settings.url,
        trust=trust,
        relayer_identity=bytes.fromhex(identity) if identity else None,
        clock=clock,
        http=http,
        pause=pause,
    )


def open_outbox(
    settings: PluginSettings, environ: Mapping[str, str], holder: KeyHolder | None, origin: str
) -> Outbox:
    """Open the outbox for the turns of one account and one relayer.

    It is in memory if ``capture.durable`` is false, if memory is switched off (``holder`` is None), or if the user has no
    home directory; otherwise it is a sealed file.
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
    """Return the path of the file with the shared namespaces; a path that cannot exist if the user has no home directory."""
    try:
        return config_directory(environ) / "shares.json"
    except IdentityError:
        return Path(os.devnull) / "shares.json"


def active_traces(
    settings: PluginSettings, environ: Mapping[str, str], root: Path | None = None
) -> ActiveTraces | None:
    """Return the writer of active mode's trace files; None unless ``active.persist_transcripts`` is on.

    Raises:
        IdentityError: traces are requested, and the user has no home directory.
    """
    if settings.disabled or not settings.active.persist_transcripts:
        return None
    return ActiveTraces(root or state_directory(environ), settings.active.transcript_dir)
