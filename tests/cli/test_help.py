"""Help, explanations, schemas, completion; what goes where; and that every command a text names exists."""

import ast
import itertools
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator
from typer import Exit
from typer._click.exceptions import UsageError
from typer.core import TyperGroup
from typer.main import get_command

from dr_ctl.application import explaining
from dr_ctl.application.documents import data_types, schema_of
from dr_ctl.application.result import Group, Result
from dr_ctl.cli.app import app, run
from dr_ctl.cli.command import SECTIONS, TEXTS, added
from dr_ctl.cli.output import drawn, end, groups_text
from dr_ctl.cli.session import Session
from dr_ctl.core.findings import meanings
from dr_ctl.core.model import ExitCode, Finding, Severity
from dr_ctl.engine.ports import Check
from tests.cli.conftest import Ended, Shell

COMMON = ("--output", "--json", "--quiet", "--warn-exit", "-h, --help")
GROUPS = (*(str(group.name) for group in app.registered_groups), "lab")


def commands() -> set[str]:
    rows = {str(registered_command.name) for registered_command in app.registered_commands}
    groups = [(group.name, group.typer_instance) for group in app.registered_groups]
    for name, group in (*groups, *((name, added(name)) for name in TEXTS)):
        assert group is not None
        for command in group.registered_commands:
            rows.add(f"{name} {command.name}" if command.name != name else name)
    return rows


COMMANDS = sorted(commands())


@pytest.mark.parametrize("name", TEXTS)
def test_what_help_says_of_an_added_command_is_what_it_says_itself(dr_ctl: Shell, name: str) -> None:
    shown = " ".join(dr_ctl(name, "--help").out.split())

    assert TEXTS[name] in shown


def test_without_their_package_added_commands_are_unknown(dr_ctl: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())

    ended = dr_ctl("lab", "status", "--json")

    assert (ended.code, ended.document["summary"]) == (2, "No such command 'lab'.")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example_that_can_be_typed(dr_ctl: Shell, name: str) -> None:
    ended = dr_ctl(*name.split(), "--help")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"Usage: dr-ctl {name} ")
    assert [word for word in COMMON if word not in ended.out] == []
    assert [word for word in ("click", "Traceback", "Session", "None", "-\n") if word in ended.out] == []
    [example] = re.findall(r"^  Example:\n    dr-ctl (.+)$", ended.out, re.MULTILINE)
    assert example.startswith(name)
    assert why_not(shlex.split(example), whole()) is None
    words = shlex.split(f"{name} --config x.yaml --state-dir y --verbose --no-color --json --quiet --warn-exit --help")
    assert why_not(words, whole()) is None, "what every command takes may stand behind it"


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_alone_shows_its_help_and_names_its_commands(dr_ctl: Shell, group: str) -> None:
    ended = dr_ctl(group)

    assert (ended.code, ended.err, ended.out) == (0, "", dr_ctl(group, "--help").out)
    assert all(f"  {name.split()[1]} " in ended.out for name in COMMANDS if name.startswith(f"{group} "))
    assert "..." not in ended.out.partition("\n")[2].replace("[FILE]...", "")


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_without_a_command_all_of_them_are_shown(dr_ctl: Shell, words: list[str]) -> None:
    ended = dr_ctl(*words)

    assert (ended.code, ended.err) == (0, "")
    assert all(f"  {name} " in ended.out for name in (*GROUPS, *(name for name in COMMANDS if " " not in name)))
    assert all(f"  {option} " in ended.out for option in ("--config", "--state-dir", "--verbose", "--no-color"))


def test_help_asks_nothing_of_settings_or_brokers(dr_ctl: Shell) -> None:
    (dr_ctl.folder / "dr-ctl.yaml").write_text("not: [settings", encoding="utf-8")

    assert dr_ctl("swapover", "--help").code == 0
    assert not dr_ctl.state.exists()


def test_commands_stand_by_what_they_are_for_in_whole_sentences_with_the_exit_codes(dr_ctl: Shell) -> None:
    result = dr_ctl("--help").out

    shown = {command.split()[0] if command.split()[0] in GROUPS else command for command in commands()}
    assert {name for names in SECTIONS.values() for name in names} == shown
    assert [title for title in SECTIONS if f"\n{title}:\n" not in result] == []
    assert "..." not in result.partition("\n")[2]
    for code, meaning in meanings().items():
        assert re.search(rf"^  {int(code)} +{re.escape(meaning.brief)}$", result, re.MULTILINE), code


def test_one_letter_asks_for_help_everywhere_and_it_says_which_version_it_is(dr_ctl: Shell) -> None:
    for words in ([], ["status"], ["runs"], ["runs", "list"], ["lab", "up"]):
        assert dr_ctl(*words, "-h") == dr_ctl("help", *words) == Ended(0, dr_ctl(*words, "--help").out, "")
    said = dr_ctl("--version")
    assert said.out.startswith(
        f"dr-ctl {version('dr-ctl')}\nPython {sys.version.split()[0]}, PySpark {version('pyspark')}, "
    )
    assert re.search(r", (no Java|Java \S.*)\n\Z", said.out)


SOURCES: Final = Path(__file__).parents[2] / "dr_ctl"
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
            name, resolve_command, rest = context.command.resolve_command(context, rest)
            assert resolve_command is not None
            context = resolve_command.make_context(name, rest, parent=context)
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
    for path in sorted(SOURCES.rglob("*.py")):
        source, inside = path.read_text("utf-8"), set[int]()
        if "`dr-ctl " not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.JoinedStr):
                inside |= {id(item) for item in ast.walk(node) if item is not node}
                text = "".join(str(value.value) if isinstance(value, ast.Constant) else HOLE for value in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
                text = node.value
            else:
                continue
            yield from ((f"{path.relative_to(SOURCES)}:{node.lineno}", match) for match in COMMAND.findall(text))


def in_tables() -> Iterator[tuple[str, str]]:
    for entry in (*explaining.codes().values(), *explaining.findings().values()):
        for text in (entry.what, entry.do, entry.costs, entry.undo):
            yield from ((entry.name, match) for match in COMMAND.findall(text))


@pytest.mark.parametrize("found", [in_tables, in_sources], ids=["tables", "sources"])
def test_the_command_line_takes_every_command_that_a_text_names(found: object) -> None:
    command, wrong = whole(), []
    named = sorted(set(found()))  # type: ignore[operator]
    for where, text in named:
        if text.startswith(HOLE) or any(item in text for item in NOT_TYPED):
            continue
        if all(why_not(words, command) for words in filled(text)):
            wrong.append(f"{where}: `dr-ctl {text.replace(HOLE, '{}')}`")

    assert len(named) > 50
    assert why_not(["fense", "london"], command)
    assert why_not(["failover", "--to", "paris", "--queues", "orders.#"], command)
    assert wrong == [], "\n".join(wrong)


@pytest.mark.parametrize("code", [ExitCode.REVERTED, ExitCode.INCOMPLETE, ExitCode.UNKNOWN, ExitCode.STRANDED])
def test_an_end_after_which_somebody_has_to_act_names_a_command(code: ExitCode) -> None:
    assert COMMAND.search(explaining.codes()[code].do)


Offered = Callable[[str], list[str]]


@pytest.fixture
def offered(dr_ctl: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Offered:
    (dr_ctl.folder / "dr-ctl.yaml").write_text("sites: {london: {}, paris: {}}\n", encoding="utf-8")
    monkeypatch.setenv("_DR_CTL_COMPLETE", "complete_bash")

    def words(line: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        with pytest.raises(SystemExit):
            run([])
        output = capsys.readouterr()
        assert output.err == ""
        return output.out.split()

    return words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("dr-ctl swapover --to ", ["london", "paris"]),
        ("dr-ctl failover --presume-down p", ["paris"]),
        ("dr-ctl fence l", ["london"]),
        ("dr-ctl plan f", ["failover", "failback"]),
        ("dr-ctl explain rever", ["reverted"]),
        ("dr-ctl explain 2", ["2", "20", "21", "22", "23", "24"]),
        ("dr-ctl explain DR-ROLE-019", ["DR-ROLE-019"]),
        ("dr-ctl schema ru", ["runs", "runbook"]),
        ("dr-ctl schema runs l", ["list"]),
    ],
)
def test_names_are_completed(offered: Offered, line: str, words: list[str]) -> None:
    assert offered(line) == words


def test_the_settings_and_the_state_that_were_named_are_meant_and_no_others(dr_ctl: Shell, offered: Offered) -> None:
    assert offered("dr-ctl runs show ") == []
    (dr_ctl.folder / "other.yaml").write_text("sites: {ghent: {}, ostend: {}}\n", encoding="utf-8")
    for name in ("20261121T091512Z-swapover-paris-7f3a", "20261122T091512Z-failover-london-0001"):
        (dr_ctl.state / "runs" / name).mkdir(parents=True)

    assert offered("dr-ctl --config other.yaml swapover --to ") == ["ghent", "ostend"]
    assert offered("dr-ctl runs show 2") == [
        "20261122T091512Z-failover-london-0001",
        "20261121T091512Z-swapover-paris-7f3a",
    ]
    (dr_ctl.folder / "dr-ctl.yaml").write_text("sites: {london: {}, paris: {}}\nbroken: [\n", encoding="utf-8")
    assert offered("dr-ctl swapover --to ") == [], "what cannot be read offers nothing"


def test_a_shell_gets_it_of_the_program_itself(offered: Offered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_WORDS", "dr-ctl fence p")
    monkeypatch.setenv("COMP_CWORD", "2")

    program = [Path(sys.executable).with_name("dr-ctl")]
    assert subprocess.run(program, capture_output=True, text=True, check=False).stdout.split() == ["paris"]


@pytest.mark.parametrize(
    "word", ["22", "DR-UNKNOWN", "DR-RUN-003", "dr-run-003", "reverted", "drain_timeout", *map(str, map(int, ExitCode))]
)
def test_each_says_what_is_so_what_to_do_what_it_costs_and_whether_it_can_be_undone(dr_ctl: Shell, word: str) -> None:
    ended, items = dr_ctl("explain", word), dr_ctl("explain", word, "--json").document["data"]

    assert (ended.code, ended.err) == (0, "")
    parts = [" ".join(items[name].split()) for name in ("what", "do", "costs", "undo")]
    assert [part for part in parts if part not in " ".join(ended.out.split())] == []
    heads = [line.partition(":")[0] for line in ended.out.partition("\n\n")[2].splitlines() if line[0] != " "]
    assert heads == ["To do", "Effect", "Undo"]
    assert all(len(line) <= 80 for line in ended.out.splitlines())
    assert not (dr_ctl.folder / "dr-ctl.yaml").exists()


ROOT = Path(__file__).parents[2]


def test_every_command_has_a_schema_that_names_it_and_no_other_has() -> None:
    assert {*data_types()} == {*commands(), *(command.partition(" ")[0] for command in commands())}
    parts = {}
    for command in data_types():
        schema = schema_of(command)
        assert command in schema["title"]
        parts |= {json.dumps(part): part for part in (*schema.pop("$defs", {}).values(), schema)}
    for part in parts.values():  # many documents have the same
        Draft202012Validator.check_schema(part)


def test_as_text_it_is_the_schema_and_nothing_else_and_without_a_command_that_of_the_settings(dr_ctl: Shell) -> None:
    ended = dr_ctl("schema", "runs", "list")

    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out) == schema_of("runs list")
    assert dr_ctl("schema", "runs", "list", "--json").document["data"]["schema"] == schema_of("runs list")
    assert json.loads(dr_ctl("schema").out) == json.loads((ROOT / "docs" / "settings.schema.json").read_bytes())


RUNBOOKS = ["runbook", "list"]
TO_JSON = [
    ["--json", *RUNBOOKS],
    ["--output", "json", *RUNBOOKS],
    [*RUNBOOKS, "--output", "json"],
    [*RUNBOOKS, "--output=json"],
    ["--output", "text", *RUNBOOKS, "--json"],
    ["--output", "text", *RUNBOOKS, "--output", "json"],
    ["--json", "--quiet", *RUNBOOKS],
]
TO_TEXT = [RUNBOOKS, ["--output", "text", *RUNBOOKS], ["--json", *RUNBOOKS, "--output", "text"]]


def test_json_is_asked_for_before_the_command_and_after_it_and_text_is_the_default(dr_ctl: Shell) -> None:
    items, text = dr_ctl(*RUNBOOKS, "--json"), dr_ctl(*RUNBOOKS)

    assert text.out.startswith("failback ")
    assert (items.code, text.code, items.out.count("\n")) == (0, 0, 1)
    for words, shown in [(item, items) for item in TO_JSON] + [(item, text) for item in TO_TEXT]:
        assert dr_ctl(*words) == shown, words


@pytest.mark.parametrize(
    ("words", "code", "command"),
    [
        ("runbook show swapover", 0, "runbook show"),
        ("runbook show nothing", 2, "runbook show"),
        ("runs list", 0, "runs list"),
        ("runs show", 2, "runs show"),
        ("resume --yes", 10, "resume"),
        ("abort --yes", 10, "abort"),
        ("rpo estimate", 22, "rpo estimate"),
        ("swapover", 2, "swapover"),
        ("plan teleport --to paris", 2, "plan"),
        ("no-such-command", 2, ""),
        ("", 2, ""),
        ("--config missing.yaml status", 2, "status"),
    ],
)
def test_every_path_ends_with_one_document(dr_ctl: Shell, nobody: str, words: str, code: int, command: str) -> None:
    for typed in ([*words.split(), "--json"], ["--json", *words.split()], ["--output=json", *words.split()]):
        ended = dr_ctl(*typed)

        document = ended.document
        assert (ended.code, document["exit_code"], document["command"], ended.err) == (code, code, command, "")
        assert not code or document["findings"]
        assert all(finding["remedy"] for finding in document["findings"])


@pytest.mark.parametrize(
    ("severity", "code"),
    [(Severity.INFO, ExitCode.OK), (Severity.WARNING, ExitCode.WARNINGS), (Severity.ERROR, ExitCode.WARNINGS)],
)
def test_an_error_among_the_findings_is_no_less_than_a_warning(severity: Severity, code: ExitCode) -> None:
    ended = Result(ExitCode.OK, "both sites let clients in", (Finding("DR-X-001", severity, "text", ""),))

    assert end(ended, Session(warn_exit=True)) == code


LONG = " ".join(f"word{number}" for number in range(60))
NAME = "orders." + "x" * 90
FOUND = [
    Group("installation orders", [Finding("DR-X-001", Severity.WARNING, LONG, f"do {LONG}")]),
    Group("london/orders-1", [], [Check("the link is started", "london/orders-1", LONG)]),
    Group("paris"),
    Group("swapover to paris", [Finding("DR-X-002", Severity.ERROR, f"queue {NAME} differs", more=("and more",))]),
]


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_lines_are_as_wide_as_the_terminal_and_no_word_is_lost(columns: int) -> None:
    text = groups_text(FOUND, columns)

    assert all(len(line) <= columns or NAME in line for line in text.splitlines())
    assert text.split() == groups_text(FOUND, None).split()


def test_a_terminal_cuts_no_word_and_colours_what_is_wrong() -> None:
    text = "!! DR-ROLE-001  split brain: both sites let clients in\n      -> `dr-ctl fence london` closes london\nok"

    plain, coloured = (drawn(text, 40, color=color) for color in (False, True))

    assert plain.split() == text.split()
    assert max(map(len, plain.split("\n"))) <= 40
    assert [line.startswith("\x1b[31m") for line in coloured.split("\n")] == [True, False, False, False, False]
    assert drawn("CRITICAL - no site serves", 80, color=True).endswith("CRITICAL\x1b[0m - no site serves")


def test_verbose_shows_the_cause_and_nothing_else_does(dr_ctl: Shell) -> None:
    plain, verbose = dr_ctl("runs", "show"), dr_ctl("--verbose", "runs", "show")

    assert (plain.code, verbose.code, plain.err) == (2, 2, "")
    assert plain.out == verbose.out
    assert "Traceback" in verbose.err
