"""Every command that a text of dr-ctl names exists, with each of its options: in remedies, findings, and exit codes."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from typer import Exit
from typer._click.exceptions import UsageError
from typer.core import TyperGroup
from typer.main import get_command

from dr_ctl.application import explaining
from dr_ctl.cli.app import app
from dr_ctl.core.model import ExitCode

ROOT: Final = Path(__file__).parents[2] / "dr_ctl"
COMMAND: Final = re.compile(r"`dr-ctl ([^`]+)`")
HOLE: Final = "\0"  # where an f-string puts a value
WORD: Final = re.compile(r"^\[?[A-Z][A-Z|=-]*…?\]?$")
# What stands for a name that only the reader knows, by the option before it or by the word itself.
AFTER: Final = {"--out": "plan.json", "--for": "swapover"}
VALUES: Final = {"CODE": "22", "T": "1m", "N": "3", "QUEUE=N": "orders=3", "OPERATION": "swapover"}
NOT_TYPED: Final = ("COMMAND", "…")  # a sentence about any command


def whole() -> Any:
    return get_command(app)


def why_not(words: list[str], command: Any) -> str | None:
    """The reason why the real command line does not take these words; nothing is carried out."""
    try:
        context = command.make_context("dr-ctl", [*words])
        while isinstance(context.command, TyperGroup):
            if not (rest := [*context._protected_args, *context.args]):
                return "no command"
            name, found, rest = context.command.resolve_command(context, rest)
            assert found is not None
            context = found.make_context(name, rest, parent=context)
    except Exit:
        return None  # --help
    except UsageError as error:
        return error.format_message()
    return None


def filled(text: str) -> Iterator[list[str]]:
    """The words of a command with names in the place of placeholders; values of f-strings as a name, or as nothing."""
    holes = text.count(HOLE)
    for choice in itertools.islice(itertools.product(("london", ""), repeat=holes), 64):
        between = text.split(HOLE)
        words = shlex.split("".join(itertools.chain(*itertools.zip_longest(between, choice, fillvalue=""))))
        pairs = zip(["", *words], words, strict=False)
        yield [AFTER.get(before) or VALUES.get(word, "london" if WORD.match(word) else word) for before, word in pairs]


def in_sources() -> Iterator[tuple[str, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        source, inside = path.read_text("utf-8"), set[int]()
        if "`dr-ctl " not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.JoinedStr):
                inside |= {id(each) for each in ast.walk(node) if each is not node}
                text = "".join(str(each.value) if isinstance(each, ast.Constant) else HOLE for each in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
                text = node.value
            else:
                continue
            yield from ((f"{path.relative_to(ROOT)}:{node.lineno}", each) for each in COMMAND.findall(text))


def in_tables() -> Iterator[tuple[str, str]]:
    for entry in (*explaining.codes().values(), *explaining.findings().values()):
        for text in (entry.what, entry.do, entry.costs, entry.undo):
            yield from ((entry.name, each) for each in COMMAND.findall(text))


@pytest.mark.parametrize("found", [in_tables, in_sources], ids=["tables", "sources"])
def test_the_command_line_takes_every_command_that_a_text_names(found: object) -> None:
    command, wrong = whole(), []
    named = sorted(set(found()))  # type: ignore[operator]
    for where, text in named:
        if text.startswith(HOLE) or any(each in text for each in NOT_TYPED):
            continue
        if all(why_not(words, command) for words in filled(text)):
            wrong.append(f"{where}: `dr-ctl {text.replace(HOLE, '{}')}`")

    assert len(named) > 50
    assert wrong == [], "\n".join(wrong)


def test_a_command_or_an_option_that_does_not_exist_is_found() -> None:
    command = whole()

    assert why_not(["fence", "london", "--queues", "orders.#"], command) is None
    assert why_not(["fense", "london"], command)
    assert why_not(["failover", "--to", "paris", "--queues", "orders.#"], command)


@pytest.mark.parametrize("code", [ExitCode.REVERTED, ExitCode.INCOMPLETE, ExitCode.UNKNOWN, ExitCode.STRANDED])
def test_an_end_after_which_somebody_has_to_act_names_a_command(code: ExitCode) -> None:
    assert COMMAND.search(explaining.codes()[code].do)
