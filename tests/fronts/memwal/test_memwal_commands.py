"""``memrelay account``: what its list of commands says."""

from __future__ import annotations

from relayer.fronts.memwal import accounts, commands


def test_the_list_of_commands_says_what_their_functions_say() -> None:
    summaries = {name: getattr(accounts, name).__doc__.partition("\n")[0] for name in commands.COMMANDS}
    assert summaries == commands.COMMANDS
