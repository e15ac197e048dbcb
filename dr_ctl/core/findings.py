"""Findings by their ids and exit codes by their meaning: what dr-ctl knows of each beforehand.

That of findings stands in the catalogue, `findings.toml`; how much one weighs is a field there. `found` makes one, of
what was seen. Help, `explain`, the report, README, docs and the list of checks are made of both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from dr_ctl.core.model import ExitCode, Finding, Health, Severity, Weight

NO_UNDO: Final = "No undo is needed: a broker is not changed."


class Tone(Enum):
    """How a person takes an end: the state was reached, at a price or not, nothing moved, or somebody has to act."""

    GOOD = "good"
    COST = "cost"
    """The state was reached, and something of it has a price. No exit code has it: the result's figures do."""
    UNDONE = "undone"
    BAD = "bad"
    OPEN = "open"
    """Of a run that has not ended. No exit code has it."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """`brief` is the line of the help, `what` the sentence of report and docs, `elsewhere` the meaning for commands
    that make no run, `do` what to type, `effect` what that does and costs, `undo` whether that can be undone."""

    tone: Tone
    brief: str
    what: str
    do: str
    effect: str
    undo: str = NO_UNDO
    elsewhere: str = ""


MEANINGS: Final[Mapping[ExitCode, Meaning]] = {
    ExitCode.OK: Meaning(
        Tone.GOOD,
        "the wanted state holds, and was verified",
        "The wanted state holds, and that was verified; also where it held already and nothing was done.",
        "Nothing. Read `findings` and `debts` of the result: a good end may leave a debt.",
        "Nothing.",
    ),
    ExitCode.INTERNAL: Meaning(
        Tone.BAD,
        "a defect in dr-ctl, or this machine fails it",
        "A defect in dr-ctl, or this machine fails it: a port is taken, its disk is full, a file cannot be read.",
        "`dr-ctl status` says where things stand; mend what the message names, or run the command again with "
        "`--verbose` and report it.",
        "`dr-ctl status` changes nothing. A run that was under way is open; `dr-ctl resume` or `dr-ctl abort` ends it.",
        elsewhere="Of `check`, whose codes are those of monitoring systems: a warning.",
    ),
    ExitCode.USAGE: Meaning(
        Tone.UNDONE,
        "arguments or settings are wrong",
        "The arguments or the settings are wrong. No broker was asked to change anything.",
        "Mend what the message names; `dr-ctl COMMAND --help` has every option.",
        "Nothing.",
        elsewhere="Of `check`: critical.",
    ),
    ExitCode.MISSING: Meaning(
        Tone.UNDONE,
        "this machine lacks Java, Maven or a Python package",
        "This machine lacks a part that the command needs: Java, Maven, or a Python package. No broker was asked to "
        "change anything.",
        "Type the command that the message names, which installs the part; then the same command again. Moves, "
        "failovers, `status` and `validate` work without all of them.",
        "Nothing, but for the part that is installed.",
        elsewhere="Of `check`: unknown.",
    ),
    ExitCode.PRECHECK_FAILED: Meaning(
        Tone.UNDONE,
        "refused, nothing was changed",
        "Refused before the first call; nothing was changed.",
        "Do what the first error says, then type the same command again. `dr-ctl validate --to SITE` lists "
        "everything at once.",
        "`dr-ctl status` changes nothing.",
    ),
    ExitCode.LOSS_REFUSED: Meaning(
        Tone.UNDONE,
        "refused: more may be lost or duplicated than is accepted",
        "Refused: more messages may be lost, or come as duplicates, than is accepted, or how many is not known; "
        "nothing was changed.",
        "The owner of the limit decides: bring the lost site back, or type the command again with `--accept-loss N "
        "--accept-duplicates M`, as the refusal names them. Where somebody knows when that site's service ended: with "
        "`--silent-since T --reason TEXT`.",
        "The failover then loses at most that many messages. `dr-ctl failback --to SITE` takes in what the lost "
        "site still holds, if that site comes back.",
        "No; a failover that was done is followed by a failback.",
        elsewhere="Of `rpo estimate`: an objective is missed. Of `rpo reconcile`, `lab load` and `demo`: a"
        " ledger shows lost messages or duplicates. Of `rpo backtest`: the estimate was lower "
        "than the truth.",
    ),
    ExitCode.SERVING_SITE_ALIVE: Meaning(
        Tone.UNDONE,
        "a failover was refused: the site to leave lives",
        "A failover was refused: the site to leave serves, is sick or frozen; nothing was changed.",
        "Where that site serves: `dr-ctl swapover --to SITE` moves without loss, once the link is attached. Where"
        " it is sick: end its process for certain, or cut its host off, then type the failover again.",
        "A swapover keeps clients out for the time of the drain. The end of the process ends the service, and "
        "what it had not shipped waits there; brokers that share a store ship nothing: the other one takes the store "
        "by itself.",
        "A swapover undoes itself where it fails, and another one moves back; the end of a process cannot be undone.",
    ),
    ExitCode.LOCKED: Meaning(
        Tone.UNDONE,
        "another run holds the lock",
        "Another run holds the lock; the message says who, where and since when. Nothing was changed.",
        "Wait, and follow that run with `dr-ctl runs show --follow` on its host. Where that host is dead, its lock "
        "expires within 60 s; `dr-ctl status` then says on any host what is left to do. Only where that run is certain "
        "to be gone and nobody can wait: `--break-lock --reason TEXT`.",
        "Breaking the lock stops a run that lives in its middle.",
        "The run that was robbed is open then; `dr-ctl resume` or `dr-ctl abort` ends it.",
    ),
    ExitCode.DECLINED: Meaning(
        Tone.UNDONE,
        "a person said no, or nobody could be asked",
        "A person said no, or nobody could be asked. Nothing was changed, unless the message says that a site was"
        " reinstated.",
        "Type the command again and answer with the name that is asked for; where there is no terminal, add `--yes`.",
        "The command does what its plan says; `--dry-run` shows the plan.",
        "The plan says what is undone where the run fails; a swapover back undoes a move that succeeds.",
    ),
    ExitCode.REVERTED: Meaning(
        Tone.UNDONE,
        "failed, and everything was undone",
        "Not moved: failed or refused before the point of no return; all of it was undone, and the undo was verified.",
        "The service is where it was. The first error says what to mend; `dr-ctl runs report` shows the run step "
        "by step. Then type the same command again.",
        "Clients may have been out for a moment; the result says how long.",
        "The run undoes itself where it fails again; a swapover back undoes a move that succeeds.",
    ),
    ExitCode.INCOMPLETE: Meaning(
        Tone.BAD,
        "the target serves, but something is left to do",
        "The target serves, and something that should have been done is not, or one pair has not moved.",
        "The same command again, or the command that the first finding names, finishes it; `dr-ctl status` names "
        "what is left. The run itself is over: there is nothing to resume.",
        "The target goes on serving. The command does what is left, and nothing that is done already.",
        "A swapover back moves the service to where it was.",
    ),
    ExitCode.UNKNOWN: Meaning(
        Tone.BAD,
        "the end could not be verified: look first",
        "A call went out and its result could not be verified; or no site answered.",
        "Look first at the site that the message names, then `dr-ctl status`. Where a run is open: `dr-ctl "
        "resume` or `dr-ctl abort`. Where none is open, type the same command again once the site answers: a step "
        "that holds already is not repeated.",
        "`dr-ctl status` changes nothing; `resume` finishes the run, `abort` undoes it.",
        "A swapover back undoes a move that was resumed.",
        elsewhere="Of `rpo estimate` and `rpo backtest`: there is too little history to tell. Of `rpo reconcile`:"
        " no message was lost or duplicated, and the end of some is unknown.",
    ),
    ExitCode.STRANDED: Meaning(
        Tone.BAD,
        "no site serves, and the undo did not restore one",
        "No site could be shown to serve, and the undo did not restore it.",
        "DR-RUN-001 of the result says by hand what to do at which site; then `dr-ctl status`.",
        "Until then no site serves.",
        "A person undoes by hand what was done by hand.",
    ),
    ExitCode.DRAIN_TIMEOUT: Meaning(
        Tone.UNDONE,
        "not drained in time, everything was undone",
        "Not moved: the drain did not finish in time; all of the run was undone, and the undo was verified.",
        "`dr-ctl status` says what the link does and how long a drain takes; `dr-ctl link restart SITE` where it "
        "hangs; then the same command again with a longer `--timeout`, at a calmer hour.",
        "Clients were out for about the time that the drain was given.",
        "The run undoes itself where it fails again; a swapover back undoes a move that succeeds.",
        elsewhere="Of `drain` alone: nothing is undone, the source stays fenced.",
    ),
    ExitCode.WARNINGS: Meaning(
        Tone.GOOD,
        "as 0, with warnings (only with --warn-exit)",
        "The wanted state holds, and that was verified; there are warnings. Only with `--warn-exit`.",
        "Read the warnings.",
        "Nothing.",
    ),
    ExitCode.INTERRUPTED: Meaning(
        Tone.BAD,
        "stopped by Ctrl-C",
        "Stopped by Ctrl-C. `data.undone` says whether everything was undone.",
        "`dr-ctl status`; if it was not undone: `dr-ctl resume` or `dr-ctl abort`.",
        "`dr-ctl status` changes nothing; `resume` finishes the run, `abort` undoes it.",
        "A swapover back undoes a move that was resumed.",
    ),
    ExitCode.TERMINATED: Meaning(
        Tone.BAD,
        "stopped by SIGTERM",
        "Stopped by SIGTERM. `data.undone` says whether everything was undone.",
        "`dr-ctl status`; if it was not undone: `dr-ctl resume` or `dr-ctl abort`.",
        "`dr-ctl status` changes nothing; `resume` finishes the run, `abort` undoes it.",
        "A swapover back undoes a move that was resumed.",
    ),
}


class Case(NamedTuple):
    """`text` and `remedy` are what a person reads, with {places} for what was seen; `page` is what `check` answers."""

    text: str
    remedy: str
    severity: Severity
    page: Health | None


@dataclass(frozen=True, slots=True)
class FindingKind:
    """`cases` are the ways in which it is met, by name; the kind as such has no name. `what` is so and what to `do` in
    general, what that `costs`, whether it can be undone; `check` is the name under which `validate` lists it, empty for
    what is no check."""

    id: str
    cases: Mapping[str, Case]
    what: str
    do: str
    costs: str = "Nothing."
    undo: str = NO_UNDO
    check: str = ""
    weighs: Weight = Weight.NONE


@cache
def catalogue() -> Mapping[str, FindingKind]:
    """Every kind of finding by its id; read once, when the first is needed."""
    import tomllib  # noqa: PLC0415 - help names exit codes, and no finding

    with (Path(__file__).parents[1] / "findings.toml").open("rb") as file:
        tables = tomllib.load(file)
    return {id_: _kind(id_, severity, table) for severity, kinds in tables.items() for id_, table in kinds.items()}


def _kind(id_: str, severity: str, table: Mapping[str, Any]) -> FindingKind:
    texts = _texts(table)
    weighs = Weight.NONE
    for name in table.get("weighs", ()):
        weighs |= Weight[name.upper().replace(" ", "_")]
    of_case = {"text": "", "remedy": "", "severity": severity, "page": ""}
    kind = {**of_case, **{key: texts.pop(key) for key in of_case if key in texts}}
    cases = {"": _case(kind)}
    cases |= {name: _case({**kind, **_texts(value)}) for name, value in table.items() if isinstance(value, dict)}
    shown = {"what": _in_general(kind["text"]), "do": _in_general(kind["remedy"])}
    return FindingKind(id_, cases, **{**shown, **texts}, weighs=weighs)


def _case(row: Mapping[str, str]) -> Case:
    page = Health(row["page"]) if row["page"] else None
    return Case(row["text"], row["remedy"], Severity(row["severity"]), page)


def _texts(table: Mapping[str, Any]) -> dict[str, str]:
    return {key: " ".join(value.split()) for key, value in table.items() if isinstance(value, str)}


class _Names(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return name.upper()


def _in_general(template: str) -> str:
    """A sentence that has, in capitals, the name of what was seen where a case has a value."""
    text = template.format_map(_Names())
    first = text[:1] if text.startswith("dr-ctl") else text[:1].upper()
    return first + text[1:] + ("" if text.endswith((".", "?")) else ".")


def found(
    key: str,
    /,
    *,
    text: str | None = None,
    remedy: str | None = None,
    more: Sequence[str] = (),
    severity: Severity | None = None,
    accepted: bool | None = None,
    **seen: Any,
) -> Finding:
    """The finding of that id, or of one of its cases ("DR-LINK-004.kept_out"), of what was seen. `text` and `remedy`
    are for what another layer has worded already. What a person may accept is a warning once it is `accepted`, and an
    error before, whatever the kind is."""
    id_, _, name = key.partition(".")
    kind = catalogue()[id_]
    case = kind.cases[name]
    text = case.text.format_map(seen) if text is None else text
    remedy = case.remedy.format_map(seen) if remedy is None else remedy
    if accepted is not None:
        severity = Severity.WARNING if accepted else Severity.ERROR
    return Finding(id_, severity or case.severity, text, remedy, tuple(more), kind.weighs, case.page)
