"""``python -m demo``: the product's main job, for real, on this machine, with nothing set up.

Exit codes: 0 every assertion holds; 1 one does not; 2 it could not be run; 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from demo.conversation import Conversation, load_conversation
from demo.relayer_process import RelayerProcess
from demo.report import Report, as_document
from demo.runner import DemoOutcome, Sabotage, run
from gateway_plugin.errors import GatewayError

_FAILED: Final = 1
_COULD_NOT_RUN: Final = 2
_INTERRUPTED: Final = 130
_TEMPORARY: Final = Path("-")


class _Unusable(GatewayError):
    """Raised when the command line cannot be followed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; returns the exit code."""
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A conversation may hold letters that the terminal's encoding lacks.
        sys.stdout.reconfigure(errors="replace")
    report = Report()
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        conversation = _conversation(options.conversation)
        with _folder(options.keep) as folder:
            outcome = _perform(conversation, folder, report, options.sabotage)
            report.verdict(outcome, curated=conversation.curated)
            if options.json is not None:
                _write(options.json, as_document(outcome, source=conversation.source))
            report.next_commands(_next_commands(folder if options.keep else None, conversation))
    except KeyboardInterrupt:
        report.close()
        sys.stderr.write("interrupted; the relayer was ended\n")
        return _INTERRUPTED
    except GatewayError as error:
        report.close()
        sys.stderr.write(f"memrelay demo: {error}\n")
        return _COULD_NOT_RUN
    return 0 if outcome.held else _FAILED


def _perform(
    conversation: Conversation, folder: Path, report: Report, sabotage: Sabotage | None
) -> DemoOutcome:
    relayer = RelayerProcess(folder)
    try:
        return asyncio.run(run(conversation, folder, relayer, report, sabotage=sabotage))
    finally:
        report.close()
        # After the loop: by now no thread is left that could start it again.
        relayer.stop()


def _conversation(path: Path | None) -> Conversation:
    conversation = load_conversation(path)
    if len(conversation.agents) < 2:  # the sentence says it
        raise _Unusable(f"{conversation.source}: agents: the demonstration needs two agents or more")
    return conversation


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Make the folder of the run; it goes afterwards unless it is to be kept."""
    if keep is not None and keep != _TEMPORARY:
        try:
            keep.mkdir(parents=True, exist_ok=True)
            used = any(keep.iterdir())
        except OSError as error:
            raise _Unusable(f"--keep: {keep} cannot be used ({error.strerror})") from error
        if used:
            raise _Unusable(f"--keep: {keep} is not empty; name another directory")
        yield keep.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="memrelay-demo-"))
    try:
        yield folder
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _write(path: Path, document: str) -> None:
    try:
        path.write_text(document + "\n", "utf-8")
    except OSError as error:
        raise _Unusable(f"--json: {path} cannot be written ({error.strerror})") from error


def _next_commands(kept: Path | None, conversation: Conversation) -> list[str]:
    """Return three commands that work as they are, in the directory where the demonstration was called."""
    memrelay, gateway = _command("memrelay"), _command("memrelay-gateway")
    if kept is None:
        return [
            f"{memrelay} serve",
            f"{gateway} remember 'The bicycle is in the cellar of the office.'     # in another terminal",
            f"{gateway} search 'Where is the bicycle?'",
        ]
    agent = next(iter(conversation.agents))
    secret = f"MEMRELAY_SECRET_FILE={shlex.quote(str(kept / 'secret'))}"
    return [
        f"{memrelay} serve --data {shlex.quote(str(kept / 'relayer'))}",
        f"{secret} {gateway} list --agent {agent}     # in another terminal",
        f"{secret} {gateway} search --agent {agent} 'What is due soon?'",
    ]


def _command(name: str) -> str:
    """Spell a command so that the shell finds it, also where the environment is not activated."""
    if shutil.which(name):
        return name
    beside = Path(sys.executable).with_name(name)
    here = Path.cwd()
    return str(beside.relative_to(here)) if beside.is_relative_to(here) else str(beside)


def _as_interrupt(_number: int, _frame: FrameType | None) -> None:
    """End in the same orderly way as on Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="Play two agents' conversations through the plugin and a relayer, kill it, and check every promise.",
        epilog="Exit codes: 0 every assertion holds, 1 one does not, 2 it could not be run.",
    )
    parser.add_argument(
        "--conversation", type=Path, metavar="FILE", help="play this one; see demo/conversation.py"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        nargs="?",
        const=_TEMPORARY,
        metavar="DIR",
        help="keep data, log and secret, in DIR or where they were made",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to a file")
    # For the test of the demonstration itself.
    parser.add_argument(
        "--break", dest="sabotage", type=Sabotage, choices=tuple(Sabotage), help=argparse.SUPPRESS
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
