"""The frame that all commands of relayer and plugin run in: standard streams, interrupts, usage errors and unwritable output.

A command that fails prints one sentence on standard error. With ``--json`` it prints the error as a document on standard
output as well, unless it has printed its result already: ``{"error": {"code", "message", "fix", "exit_code"}}``. A command
that runs until it is stopped prints one line of JSON for each event, and an error is such a line, too. `application`
creates a program, `run_program` runs it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, NoReturn, cast

import typer
from typer.core import TyperGroup

from relayer.wire.amounts import parse_seconds

FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
DEFECT: Final = 70  # EX_SOFTWARE of sysexits.h
STOPPED: Final = 130  # the exit code that shells use for SIGINT
_KINDS: Final = {FAILED: "failed", USAGE: "usage", UNREACHABLE: "unreachable", STOPPED: "stopped"}
_UNWRITABLE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
_STANDARD_ERROR: Final = 2
_INSTALLED: Final = Path(__file__).parents[2]
# The base class of what typer raises for usage errors, `typer.BadParameter` among them; typer does not export it.
_Mistake: Final = cast("type[Exception]", typer.BadParameter.__mro__[2])


JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON, errors too.", rich_help_panel="Form of the answer")
]


@dataclass
class _Command:
    """The running command: its program's name, whether JSON was requested and printed, and whether JSON is printed in lines."""

    program: str
    as_json: bool = False
    answered: bool = False
    in_lines: bool = False
    complained: bool = False


_running: ContextVar[_Command] = ContextVar("_running")


def answer(document: object) -> None:
    """Print a command's JSON document. Letters outside ASCII are escaped if the terminal is not UTF-8."""
    running = _running.get(None)
    in_lines = running is not None and running.in_lines
    if running is not None:
        running.answered = not in_lines
    utf8 = "utf" in (sys.stdout.encoding or "").lower()
    typer.echo(json.dumps(document, ensure_ascii=not utf8, indent=None if in_lines else 2))


def answer_in_lines() -> None:
    """Print every JSON document of this command on one line from now on, for a command that runs until it is stopped."""
    running = _running.get(None)
    if running is not None:
        running.in_lines = True


def tell(document: object, *lines: str, as_json: bool) -> None:
    """Print the result of a command in the requested form: a JSON document, or lines for people."""
    if as_json:
        answer(document)
        return
    for line in lines:
        typer.echo(line)


def complain(sentence: str, fix: str = "") -> None:
    """Print an error, and how to fix it, on standard error."""
    running = _running.get(None)
    if running is not None:
        running.complained = True
    typer.echo(f"{running.program if running else 'memrelay'}: {sentence}", err=True)
    if fix:
        typer.echo(f"  {fix}", err=True)


def fail(code: int, sentence: str, fix: str = "", *, kind: str = "") -> NoReturn:
    """Print an error and end the command.

    ``sentence`` names no secret and no text of a memory. ``kind`` is the error's code for programs; by default it follows
    from the exit code.
    """
    complain(sentence, fix)
    running = _running.get(None)
    if running is not None and running.as_json and not running.answered:
        named = kind or _KINDS.get(code, "failed")
        answer({"error": {"code": named, "message": sentence, "fix": fix, "exit_code": code}})
    raise typer.Exit(code) from None


class _Program(TyperGroup):
    """The commands of a program; see `application`."""

    program = "memrelay"
    aliases: ClassVar[Mapping[str, Sequence[str]]] = {}

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - typer's
        windows_expand_args: bool = True,  # noqa: FBT001, FBT002 - typer's
        **extra: Any,
    ) -> Any:
        """Run a command and return its exit code, or exit the process with it if in standalone mode."""
        del prog_name  # a program that is run as a module would show the module's name
        typed = list(sys.argv[1:] if args is None else args)
        if typed:
            typed[:1] = self.aliases.get(typed[0], typed[:1])
        own = typed[: typed.index("--")] if "--" in typed else typed
        token = _running.set(_Command(self.program, as_json="--json" in own))
        try:
            code = self._ended(
                lambda: super(_Program, self).main(
                    typed,
                    self.program,
                    complete_var,
                    standalone_mode=False,
                    windows_expand_args=windows_expand_args,
                    **extra,
                )
            )
        finally:
            _running.reset(token)
        if standalone_mode:
            sys.exit(code)
        return code

    def _ended(self, run: Callable[[], Any]) -> int:
        """Call ``run`` and return the exit code."""
        try:
            try:
                code = run()
                sys.stdout.flush()
                if code == STOPPED and not _running.get().complained:
                    fail(STOPPED, "stopped")
            except _Mistake as error:
                if type(error).__name__ == "NoArgsIsHelpError":
                    return USAGE  # typer has printed the help already
                _tell_of_a_mistake(error)
            except OSError as error:
                if error.errno in _UNWRITABLE:
                    _drop_output()
                    fail(
                        USAGE,
                        f"standard output cannot be written ({error.strerror}); what was asked for may be done",
                    )
                if error.filename is None or error.strerror is None:
                    raise
                fail(USAGE, f"{os.fsdecode(error.filename)}: {error.strerror}")
            except typer.Abort:
                fail(
                    FAILED,
                    "a question was not answered; nothing was changed",
                    "answer it with an option, see -h",
                )
        except typer.Exit as ended:
            return ended.exit_code
        return code if isinstance(code, int) else 0


def span(
    option: str, unit: str = "s", *, least: float = 0, most: float = math.inf
) -> Callable[[object], float]:
    """Return a parser for an option that is a duration, see `relayer.wire.amounts.parse_seconds`.

    A number without a unit is in ``unit``, and so are the bounds and the returned value. Error messages name the option.
    """

    def read(given: object) -> float:
        try:
            found = parse_seconds(str(given), unit) / parse_seconds("1", unit)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint=f"'{option}'") from None
        if not least <= found <= most:
            limits = f"at least {least:g}{unit}" + (f", at most {most:g}{unit}" if most < math.inf else "")
            raise typer.BadParameter(limits, param_hint=f"'{option}'")
        return found

    return read


def application(
    program: str,
    version: Callable[[], str],
    *,
    aliases: Mapping[str, Sequence[str]] | None = None,
    **options: Any,
) -> typer.Typer:
    """Return a program without commands, with ``-h``, ``--version``, shell completion and one-sentence errors.

    The version is read only when it is requested. ``aliases`` are other names of commands, which no help lists, each with the
    words that it abbreviates; the remaining options are those of `typer.Typer`.
    """

    class Program(_Program):
        """The commands of one program."""

    Program.program = program
    Program.aliases = aliases or {}
    app = typer.Typer(
        cls=Program,
        name=program,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **options,
    )

    def tell(*, asked: bool) -> None:
        if asked:
            typer.echo(f"{program} {version()}")
            raise typer.Exit

    @app.callback()
    def _begin(
        *,
        shown: bool = typer.Option(
            False,
            "--version",
            help="Show the version and exit.",
            is_eager=True,
            callback=lambda value: tell(asked=value),
        ),
    ) -> None:
        del shown

    return app


def run_program(load: Callable[[], typer.Typer]) -> None:
    """Load a program, run the command that was typed, and end the process with its exit code.

    While the command runs, an interrupt ends it with one line of output. Before and after, an interrupt ends the process
    by its signal, which is what the calling process expects.
    """
    _open_standard_streams()
    app = load()
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            app()
        finally:
            _let_interrupts_end_the_process()
    except KeyboardInterrupt:
        sys.exit(STOPPED)
    except Exception as error:  # noqa: BLE001 - the text of the error is not printed, because it may contain a secret
        _let_interrupts_end_the_process()
        _tell_of_a_defect(error)
        sys.exit(DEFECT)


def _tell_of_a_mistake(error: Any) -> NoReturn:
    context = error.ctx
    fix = f"see: {context.command_path} -h" if context is not None else ""
    # The message may list the accepted values on several lines, but an error must be one sentence.
    sentence = " ".join(error.format_message().split()).replace(": Value error, ", ": ")
    fail(error.exit_code, sentence, fix)


def _tell_of_a_defect(error: Exception) -> None:
    passed = traceback.extract_tb(error.__traceback__)
    ours = [at for at in passed if Path(at.filename).is_relative_to(_INSTALLED)] or passed
    place = f"{ours[-1].filename.removeprefix(f'{_INSTALLED}/')}:{ours[-1].lineno}"
    with contextlib.suppress(OSError):
        typer.echo(
            f"memrelay: a defect ended this command: {type(error).__name__} at {place}. What was asked for "
            "may be done; please report this line",
            err=True,
        )


def _let_interrupts_end_the_process() -> None:
    # If the caller ignores interrupts, as a shell does for background jobs, they stay ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _drop_output() -> None:
    """Redirect standard output to the null device, so that the interpreter does not report unwritten output when it exits."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _open_standard_streams() -> None:
    """Open the null device in place of missing standard streams, and let streams replace or escape what they cannot encode.

    Without them, the next files that the process opens, files of the store among them, would become its input and output.
    """
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= _STANDARD_ERROR:
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace")):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=errors)
