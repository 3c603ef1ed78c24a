"""The ``memrelay`` command: run a relayer, look after its key; what is the plugin's is handed to the plugin."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from relayer.commands.console import (
    NOT_WELL,
    ConfigOption,
    DataOption,
    EndpointOption,
    RegionOption,
    S3ClientOption,
    StoreOption,
    explained,
    fail,
)
from relayer.commands.operator import register
from relayer.health import Unhealthy, ask, own_url

# Commands that speak as a gateway; they need its secret, which a relayer must not hold.
_PLUGIN_COMMANDS = ("search", "list", "remember", "forget", "status")
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
keys = typer.Typer(no_args_is_help=True, help="Look after the relayer key.")
app.add_typer(keys, name="keys")
stores = typer.Typer(no_args_is_help=True, help="Look after the store.")
app.add_typer(stores, name="store")

_Text = Annotated[str | None, typer.Option()]
_File = Annotated[Path | None, typer.Option()]


@app.command()
def serve(
    *,
    host: _Text = None,
    port: Annotated[int | None, typer.Option()] = None,
    data: Annotated[Path | None, typer.Option(help="Directory of the store and the relayer key.")] = None,
    store: StoreOption = None,
    endpoint_url: EndpointOption = None,
    region: RegionOption = None,
    s3_client: S3ClientOption = None,
    probe: Annotated[
        str | None, typer.Option(help="Try a bucket at the start: always, cached or off.")
    ] = None,
    single_relayer: Annotated[
        bool | None, typer.Option("--single-relayer", help="Go on with a bucket that failed the probe.")
    ] = None,
    accounts: Annotated[str | None, typer.Option(help="'open', or account ids separated by commas.")] = None,
    trusted_proxy: Annotated[
        str | None, typer.Option(help="Networks whose X-Forwarded-For is believed, separated by commas.")
    ] = None,
    quota_bytes: Annotated[int | None, typer.Option(help="Kept for one account; 0: no limit.")] = None,
    quota_namespaces: Annotated[int | None, typer.Option(help="Of one account; 0: no limit.")] = None,
    quota_memories: Annotated[int | None, typer.Option(help="Of one account; 0: no limit.")] = None,
    quotas: Annotated[Path | None, typer.Option(help="TOML file with accounts' own quotas.")] = None,
    public_url: Annotated[str | None, typer.Option(help="URL by which gateways reach this relayer.")] = None,
    tls_cert: _File = None,
    tls_key: _File = None,
    rate_limits: Annotated[str | None, typer.Option(help="on or off.")] = None,
    connections: Annotated[int | None, typer.Option(help="At once, in all.")] = None,
    connections_per_address: Annotated[
        int | None, typer.Option(help="At once, of one peer address; 0: any number.")
    ] = None,
    answer_timeout: Annotated[
        float | None, typer.Option(help="Seconds in which a peer must take some of its answer.")
    ] = None,
    redaction: Annotated[str | None, typer.Option(help="Take secrets out of texts: on or off.")] = None,
    embedder: Annotated[str | None, typer.Option(help="local, or openai for an endpoint.")] = None,
    embeddings_url: Annotated[str | None, typer.Option(help="As in https://api.example.org/v1.")] = None,
    embeddings_model: Annotated[str | None, typer.Option(help="The model's name there.")] = None,
    embeddings_dimension: Annotated[int | None, typer.Option(help="Asked for when not given.")] = None,
    former_embedder: Annotated[
        str | None, typer.Option(help="The one before, while memories are embedded anew: local or openai.")
    ] = None,
    former_embeddings_url: Annotated[
        str | None, typer.Option(help="Its URL, if not --embeddings-url.")
    ] = None,
    former_embeddings_model: Annotated[str | None, typer.Option(help="Its name there.")] = None,
    former_embeddings_dimension: Annotated[int | None, typer.Option(help="Asked for when not given.")] = None,
    extractor: Annotated[str | None, typer.Option(help="statements, or llm for facts as well.")] = None,
    model_url: Annotated[str | None, typer.Option(help="As in https://api.example.org/v1.")] = None,
    model_name: Annotated[str | None, typer.Option(help="The model's name there.")] = None,
    fallback_model_url: Annotated[str | None, typer.Option(help="Its URL, if not --model-url.")] = None,
    fallback_model_name: Annotated[
        str | None, typer.Option(help="Asked what the model is asked, when that is away.")
    ] = None,
    model_timeout: Annotated[float | None, typer.Option(help="Seconds for one answer.")] = None,
    model_at_once: Annotated[int | None, typer.Option(help="Requests under way.")] = None,
    model_calls_per_day: Annotated[int | None, typer.Option(help="Of one account; 0: no limit.")] = None,
    model_tokens_per_day: Annotated[int | None, typer.Option(help="Of one account; 0: no limit.")] = None,
    turn_summaries: Annotated[
        bool | None, typer.Option("--turn-summaries", help="Have turns summarised as well.")
    ] = None,
    session_summaries: Annotated[
        str | None, typer.Option(help="Summarise sessions that end, where there is a model: on or off.")
    ] = None,
    cache_bytes: Annotated[int | None, typer.Option(help="Memory for open namespaces.")] = None,
    forget_inactive_days: Annotated[
        int | None, typer.Option(help="Forget unpinned memories not said again for so long; 0: never.")
    ] = None,
    job_takeover: Annotated[float | None, typer.Option(help="Seconds until a job changes relayers.")] = None,
    plain_http_models: Annotated[
        bool | None, typer.Option("--plain-http-models", help="Allow http to models off this machine.")
    ] = None,
    config: ConfigOption = None,
    compact_entries: Annotated[
        int | None, typer.Option(help="Entries after which a log's tail is compacted.")
    ] = None,
    collect_after: Annotated[
        float | None, typer.Option(help="Seconds before what was compacted is deleted.")
    ] = None,
    collect_idle_every: Annotated[
        float | None, typer.Option(help="Seconds between walks over what nobody has open; 0: never.")
    ] = None,
    commit_check: Annotated[
        str | None, typer.Option(help="recent (trust the manifest for ten minutes) or always (read it).")
    ] = None,
    ready_file: Annotated[Path | None, typer.Option(help="Written when requests are answered.")] = None,
    log_format: Annotated[
        str | None, typer.Option(help="auto (console on a terminal), console or json.")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
) -> None:
    """Run a relayer. Every option is also an environment variable: MEMRELAY_HOST and so on."""
    flags = dict(locals())
    with explained():
        from relayer.commands import server  # noqa: PLC0415 - needs the extra's packages

        server.serve(flags, typer.echo)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Folder for the key and the settings.")],
    *,
    store: StoreOption = None,
    endpoint_url: EndpointOption = None,
    region: RegionOption = None,
    s3_client: S3ClientOption = None,
    host: _Text = None,
    port: Annotated[int | None, typer.Option()] = None,
    accounts: Annotated[str | None, typer.Option(help="'open', or account ids separated by commas.")] = None,
    public_url: Annotated[str | None, typer.Option(help="URL by which gateways reach the relayers.")] = None,
) -> None:
    """Make a relayer key and a file of settings for services, containers and shells; says what to do next."""
    flags = {name: value for name, value in locals().items() if name != "folder"}
    with explained():
        from relayer.commands import server  # noqa: PLC0415 - needs the extra's packages

        server.init(folder, flags, typer.echo)


@app.command()
def health(
    *,
    url: Annotated[str | None, typer.Option(help="Default: the relayer of this environment.")] = None,
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask whether it can serve, not only whether it lives.")
    ] = False,
) -> None:
    """Ask a relayer how it is. Exit code 1: it does not answer, or a check fails."""
    with explained():
        try:
            typer.echo(ask(url or own_url(os.environ), ready=ready))
        except Unhealthy as error:
            fail(str(error), NOT_WELL)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(importlib.metadata.version("memrelay"))


@keys.command()
def recovery(
    *,
    data: Annotated[Path | None, typer.Option(help="Directory of the relayer key.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare a sheet from standard input.")] = False,
) -> None:
    """Print the relayer key as a sheet with checksums, or compare a sheet with the key."""
    with explained():
        from relayer.commands import server  # noqa: PLC0415 - needs the extra's packages

        if verify:
            server.check_sheet(data, sys.stdin.read(), typer.echo)
        else:
            server.print_sheet(data, typer.echo)


@keys.command()
def make(file: Annotated[Path, typer.Argument(help="File to make, readable by its owner alone.")]) -> None:
    """Make a relayer key for a relayer over a bucket."""
    with explained():
        from relayer.commands import server  # noqa: PLC0415 - needs the extra's packages

        server.make_key(file, typer.echo)


@stores.command("probe")
def probe_store(
    *,
    store: StoreOption = None,
    endpoint_url: EndpointOption = None,
    region: RegionOption = None,
    s3_client: S3ClientOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
) -> None:
    """Try whether a store keeps what the log rests on. Exit code 1: it does not; 2: settings; 3: no answer."""
    flags = dict(locals())
    with explained():
        from relayer.commands import server  # noqa: PLC0415 - needs the extra's packages

        code = server.probe_store(flags, typer.echo)
    raise typer.Exit(code)


def _hand_over(name: str) -> None:
    def command(context: typer.Context) -> None:
        found = importlib.metadata.entry_points(group="console_scripts", name="memrelay-gateway")
        for entry in found:
            sys.argv = ["memrelay-gateway", name, *context.args]
            entry.load()()
            return
        fail(f"memrelay-gateway is not installed, and {name} is its command")

    app.command(
        name,
        help=f"Same as: memrelay-gateway {name}",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(command)


register(app)
for _name in _PLUGIN_COMMANDS:
    _hand_over(_name)
