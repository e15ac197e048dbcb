"""The manual page, made of the commands as they are declared:

python -m dr_ctl.cli.manual docs/dr-ctl.1
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dr_ctl import __version__
from dr_ctl.cli.app import declared
from dr_ctl.cli.command import SECTIONS, TEXTS
from dr_ctl.core.findings import meanings

_DESCRIPTION = """dr-ctl moves a messaging service between two sites of ActiveMQ brokers: it fences clients, drains the
replication link, verifies that both sites hold the same messages, opens the target and proves that it serves. A failure
before the point of no return is undone. `dr-ctl COMMAND --help` has an example of each command."""
_ENVIRONMENT = {
    "DR_CTL_CONFIG": "The settings file; --config wins. Default: dr-ctl.yaml here, then in the user's configuration.",
    "DR_CTL_STATE_DIR": "Where runs are kept; --state-dir wins. Default: the user's state directory.",
    "NO_COLOR": "Plain text, as with --no-color.",
    "JAVA_HOME": "The Java that the estimate starts.",
}


def manual() -> str:
    """The page in the macros of man(7)."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    whole: Any = declared()
    yield f'.TH DR\\-CTL 1 "" "dr\\-ctl {__version__}" "dr\\-ctl"'
    yield from _section("Name", r"dr\-ctl \- move a messaging service between two sites of ActiveMQ brokers")
    yield from _section("Synopsis", ".B dr\\-ctl", _escaped("[OPTION]... COMMAND [ARGUMENT]..."))
    yield from _section("Description", _escaped(_DESCRIPTION))
    yield from _section("Options")
    yield from _options(whole, "", only_own=False)
    for title, names in SECTIONS.items():
        yield from _section(title)
        for name in names:
            yield from _command(whole.commands.get(name), name)
    yield from _section("Exit status")
    for code, meaning in meanings().items():
        yield from _item(str(int(code)), f"{meaning.brief} ({code.outcome})")
    yield from _section("Environment")
    for name, text in _ENVIRONMENT.items():
        yield from _item(name, text)


def _command(command: Any, name: str) -> Iterator[str]:
    if command is None:  # of the second package, which this one does not load
        yield f'.SS "{_escaped(name)}"'
        yield _escaped(TEXTS[name])
    elif members := getattr(command, "commands", None):
        for member, subcommand in members.items():
            yield from _command(subcommand, f"{name} {member}")
    else:
        yield f'.SS "{_escaped(name)}"'
        yield _escaped(" ".join(command.help.split()))
        yield from _options(command, name, only_own=True)


def _options(command: Any, name: str, *, only_own: bool) -> Iterator[str]:
    common = {"output", "json", "quiet", "warn_exit", "help"}
    # Beneath the whole, whose names of the option for help each command keeps from then on.
    whole: Any = declared()
    with whole.make_context("dr-ctl", [], resilient_parsing=True) as above:
        ctx = above if command is whole else command.make_context(name, [], parent=above, resilient_parsing=True)
        rows = [(param.name, param.get_help_record(ctx)) for param in command.get_params(ctx)]
    for option, row in rows:
        if row is not None and not (only_own and option in common):
            yield from _item(*row)


def _section(title: str, *lines: str) -> Iterator[str]:
    yield f'.SH "{title.upper()}"'
    yield from lines


def _item(name: str, text: str) -> Iterator[str]:
    yield ".TP"
    yield f"\\fB{_escaped(name)}\\fR"
    yield _escaped(text)


def _escaped(text: str) -> str:
    """As roff takes it literally: no line of the texts begins with a control character."""
    return " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(manual(), encoding="utf-8")
