"""Commands that another package adds to the command line, by entry points of the group `dr_ctl.commands`.

Help must be instant, so what it says of them stands here; their package is looked for when one of them is called.
"""

from typing import Final

import typer

GROUP: Final = "dr_ctl.commands"
TEXTS: Final = {
    "lab": "Throw-away real brokers on this machine, faults, and traffic with a ledger.",
    "demo": "The main job on two brokers: a swapover, a failover and a failback under load; the ledger judges each.",
}


def added(name: str) -> typer.Typer | None:
    """Load a command, or a group of commands, that an installed package adds under that name, if any."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - importing takes a fifth of a short command's time

    for entry_point in entry_points(group=GROUP, name=name):
        commands: typer.Typer = entry_point.load()
        return commands
    return None
