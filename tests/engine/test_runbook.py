"""Runbooks: the shipped ones pass the lint; what is not well formed or not safe is told all at once, by line."""

import itertools
import re
from pathlib import Path

import pytest

from dr_ctl.core.errors import UsageError
from dr_ctl.core.model import Severity
from dr_ctl.engine.runbook import OPERATIONS, ORDER, VERBS, Runbook, files, lint, load, shipped

SWAPOVER = (shipped() / "swapover.yaml").read_text(encoding="utf-8")
FAILOVER = """\
runbook: failover
about: The serving site is lost. Bring the other up now.
steps:
  - observe: {lost: 5s}
  - check: failover
  - snapshot: both
  - estimate: {stored: true}
  - fence: lost
  - quarantine: lost
  - settle: target
  - point-of-no-return: {}
  - activate: target
  - probe: target
"""
FAILBACK = SWAPOVER.replace("runbook: swapover", "runbook: failback").replace(
    "  - check: swapover\n", "  - check: failback\n  - residue: both\n  - reinstate: both\n  - ask: Move back now?\n"
)
GOOD = {"swapover": SWAPOVER, "failover": FAILOVER, "failback": FAILBACK}


def written(folder: Path, text: str | bytes, name: str = "book.yaml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def linted(folder: Path, text: str | bytes) -> list[str]:
    """What the lint says of a text; a text with an error is never a runbook."""
    book, findings = lint(written(folder, text))
    assert (book is None) is any(finding.severity is Severity.ERROR for finding in findings)
    return [finding.text.removeprefix("book.yaml:") for finding in findings]


def swap(old: str, new: str) -> str:
    """The shipped swapover with the first `old` replaced."""
    assert old in SWAPOVER
    return SWAPOVER.replace(old, new, 1)


def without(text: str, verb: str) -> str:
    return re.sub(rf"  - {verb}:.*\n", "", text)


def line_of(text: str, verb: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), start=1) if line.startswith(f"  - {verb}:"))


def exchanged(text: str, first: str, then: str) -> str:
    """The text with the lines of two verbs in each other's place."""
    lines = text.splitlines(keepends=True)
    one, two = line_of(text, first) - 1, line_of(text, then) - 1
    lines[one], lines[two] = lines[two], lines[one]
    return "".join(lines)


# Good ones


def test_every_runbook_that_is_shipped_passes() -> None:
    paths = files(shipped())
    told = {path.stem: lint(path) for path in paths}
    assert "swapover" in told
    assert {name: findings for name, (_, findings) in told.items() if findings} == {}
    assert all(book is not None and book.operation == name for name, (book, _) in told.items())


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_runbook_as_described_passes(tmp_path: Path, operation: str) -> None:
    assert linted(tmp_path, GOOD[operation]) == []


def test_a_runbook_is_read_with_its_limits_and_words(tmp_path: Path) -> None:
    book, _ = lint(written(tmp_path, FAILOVER))
    assert isinstance(book, Runbook)
    steps = {step.verb: step for step in book.steps}
    assert list(steps) == [step.verb for step in book.steps]
    assert book.about == "The serving site is lost. Bring the other up now."
    assert (steps["observe"].site, steps["observe"].limits, steps["observe"].line) == ("both", {"lost": 5.0}, 4)
    assert steps["estimate"].words == {"stored": True}
    assert (steps["check"].words, steps["fence"].site) == ({"operation": "failover"}, "lost")


def test_short_and_long_forms_are_the_same(tmp_path: Path) -> None:
    long = SWAPOVER.replace("fence: serving", "fence: {site: serving}").replace("drain: {to: target}", "drain: target")
    long = long.replace("check: swapover", "check: {operation: swapover}")
    book, _ = lint(written(tmp_path, long))
    assert book is not None
    assert book.steps == load("swapover", shipped()).steps


def test_a_runbook_without_a_sentence_about_it_is_good_with_a_warning(tmp_path: Path) -> None:
    book, findings = lint(written(tmp_path, FAILOVER.replace("about:", "# about:")))
    assert book is not None
    assert [(finding.severity, finding.text) for finding in findings] == [
        (Severity.WARNING, "book.yaml:1: about: is missing; say in a sentence what the runbook is for")
    ]


@pytest.mark.parametrize("line", ["hook: fence-host", "ask: Is the room dark?", "hold: 5s", "observe: both"])
def test_hooks_questions_pauses_and_looks_may_stand_more_than_once(tmp_path: Path, line: str) -> None:
    assert linted(tmp_path, swap("  - fence:", f"  - {line}\n  - {line}\n  - fence:")) == []


# Not well formed

A_MAPPING = "1: a runbook is a mapping with the keys runbook, about and steps"
ONE_VERB = "a step is one verb with what it needs, as in `fence: serving`"
UNITS = "write a number with its unit, as in 20ms, 5s, 1m, 2h or 30d"
NAMES = "it names one of swapover, failover, failback"
ALL_VERBS = ", ".join(VERBS)
FENCE = "  - fence: serving\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", A_MAPPING),
        ("- observe: both\n", A_MAPPING),
        (b"\xff\xfe", "0: cannot be read: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        ("runbook: swapover\n\tabout: x\n", "2: is not YAML: found character '\\t' that cannot start any token"),
        ("runbook: [\n", "2: is not YAML: expected the node content, but found '<stream end>'"),
        (SWAPOVER + "---\na: b\n", "15: is not YAML: but found another document"),
        ("about: x\nrunbook: swapover\nsteps: []\n", "3: steps: is a list with at least one step"),
        ("about: x\nrunbook: swapover\nsteps: fast\n", "3: steps: is a list with at least one step"),
        ("about: x\nrunbook: swapover\n", "1: steps: is a list with at least one step"),
        (swap("about:", "about: {a: b}\n#"), "2: about: is a sentence that says what the runbook is for"),
        (swap("about:", "about:\n#"), "2: about: is a sentence that says what the runbook is for"),
        (swap("steps:", "runbook: swapover\nsteps:"), "3: runbook stands a second time"),
        (swap("steps:", "stages: []\nsteps:"), "3: unknown key 'stages'; a runbook has runbook, about and steps"),
        ("# ours\n" + swap("runbook: swapover", "runbook: moveover"), f"2: runbook: is 'moveover'; {NAMES}"),
        (swap("runbook: swapover", "# ours"), f"1: runbook: is ''; {NAMES}"),
        (swap("  - estimate: {}", "  - estimte: {}"), f"6: unknown verb 'estimte'; the verbs are {ALL_VERBS}"),
        (swap("  - estimate: {}", "  - [estimate]"), f"6: {ONE_VERB}"),
        (swap("  - estimate: {}", "  - estimate"), f"6: {ONE_VERB}"),
        (swap("  - estimate: {}", "  - {}"), f"6: {ONE_VERB}"),
        (swap("  - estimate: {}", "  - estimate: {}\n    hold: 5s"), f"6: {ONE_VERB}"),
        (swap("within: 1m", "within: 60"), f"7: catch-up: within: 60 is not a duration; {UNITS}"),
        (swap("within: 5s", "within: soon"), f"8: quiesce: within: 'soon' is not a duration; {UNITS}"),
        (swap("within: 5s", "within: 5s, within: 50s"), "8: quiesce: within stands a second time"),
        (swap("within: 5s", "speed: 5s"), "8: quiesce: does not know 'speed'; it takes site, within"),
        (swap("return: {}", "return: target"), "12: point-of-no-return: does not know 'site'; it takes nothing"),
        (swap("within: 5s", "within: 2001-99-99"), "8: quiesce: what it needs cannot be read; put texts in quotes"),
        (swap("estimate: {}", "estimate: {stored: 1}"), "6: estimate: stored is true or false, not 1"),
        (swap(FENCE, "  - hook: 7\n" + FENCE), "9: hook: name is a text, not 7"),
        (swap(FENCE, "  - ask: ' '\n" + FENCE), "9: ask: sentence is a text, not ' '"),
        (swap(FENCE, "  - hook: {}\n" + FENCE), "9: hook: lacks its name"),
        (swap(FENCE, "  - hold:\n" + FENCE), "9: hold: lacks its for"),
        (
            swap("fence: serving", "fence: london"),
            "9: fence: 'london' is not a site word; they are both, lost, serving, source, target",
        ),
        (swap("check: swapover", "check: failover"), "5: check: is for failover, but the runbook is for swapover"),
        # A verb at a site that it is not for.
        (swap("fence: serving", "fence: target"), "9: fence: is for source or serving or lost, not target"),
        (swap("fence: serving", "fence:"), "9: fence: is for source or serving or lost, not both"),
        (swap("site: serving", "site: target"), "8: quiesce: is for source or serving, not target"),
        (swap("drain: {to: target}", "drain: {to: source}"), "10: drain: is for target, not source"),
        (swap("verify: {to: target}", "verify: both"), "11: verify: is for target, not both"),
        (swap("activate: target", "activate: source"), "13: activate: is for target, not source"),
        (swap("activate: target", "activate: {}"), "13: activate: is for target, not both"),
        (swap("probe: target", "probe: serving"), "14: probe: is for target, not serving"),
        (SWAPOVER + FENCE, "15: fence stands a second time"),
        ("runbook: failback\nabout: x\nsteps:\n  - observe: both\n",
         "4: activate is missing: the target would never serve"),
    ],
)  # fmt: skip
def test_what_is_not_well_formed_is_told_with_its_line(tmp_path: Path, text: str | bytes, told: str) -> None:
    assert linted(tmp_path, text)[0] == told


# Not safe

RULES = [(operation, *rule) for operation, rules in ORDER.items() for rule in rules]


@pytest.mark.parametrize(("operation", "first", "then", "because"), RULES)
def test_the_wrong_order_is_told_with_the_reason(
    tmp_path: Path, operation: str, first: str, then: str, because: str
) -> None:
    text = exchanged(GOOD[operation], first, then)
    assert f"{line_of(text, then)}: {then} stands before {first}: {because}" in linted(tmp_path, text)
    text = without(GOOD[operation], first)
    told = linted(tmp_path, text)
    expected = f"{line_of(text, then)}: {then} without {first} before it: {because}"
    assert expected in told or any(f"{first} is missing after" in each for each in told)


MOVE = ("check", "quiesce", "fence", "drain", "verify", "point-of-no-return", "activate", "probe")
LOST = ("check", "fence", "point-of-no-return", "activate", "probe")
NEEDED = {"swapover": MOVE, "failback": MOVE, "failover": LOST}
UNSAFE = [(op, exchanged(GOOD[op], *two)) for op, verbs in NEEDED.items() for two in itertools.pairwise(verbs)]
UNSAFE += [(op, without(GOOD[op], verb)) for op, verbs in NEEDED.items() for verb in verbs]


@pytest.mark.parametrize(("operation", "text"), UNSAFE)
def test_no_verb_that_safety_needs_can_be_left_out_or_change_places(tmp_path: Path, operation: str, text: str) -> None:
    book, findings = lint(written(tmp_path, text))
    assert book is None
    assert {finding.id for finding in findings} == {"DR-BOOK-003"}


def test_everything_is_told_in_one_pass_by_line(tmp_path: Path) -> None:
    told = linted(
        tmp_path,
        """\
runbook: swapover
colour: blue
steps:
  - check: swapover
  - quiesce: {site: target, within: 5}
  - drian: {to: target}
  - activate: target
  - fence: serving
""",
    )

    assert told == [
        "1: about: is missing; say in a sentence what the runbook is for",
        "2: unknown key 'colour'; a runbook has runbook, about and steps",
        "4: drain is missing after fence: a zero under load means nothing",
        "4: probe is missing after activate: the flag of a listener does not prove that clients get in",
        f"5: quiesce: within: 5 is not a duration; {UNITS}",
        "5: quiesce: is for source or serving, not target",
        f"6: unknown verb 'drian'; the verbs are {ALL_VERBS}",
        "7: activate without verify before it: messages that have not arrived would be lost or duplicated",
        "7: activate stands before fence: two sites would serve at the same time",
        "7: activate without point-of-no-return before it: the operator must know when stopping is no longer safe",
    ]


# Loading


def test_a_runbook_that_does_not_pass_is_not_loaded_and_all_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, swap(FENCE, "").replace("within: 1m", "within: 1"), "swapover.yaml")
    with pytest.raises(UsageError) as refused:
        load("swapover", tmp_path)
    assert str(refused.value) == "\n".join(finding.text for finding in lint(path)[1])
    assert len(str(refused.value).splitlines()) > 2
    assert refused.value.remedy == f"Mend {path}; `dr-ctl runbook lint` checks it."


@pytest.mark.parametrize(
    ("name", "told"),
    [("failover.yaml", "no runbook for swapover in"), ("swapover.yaml", "is a runbook for failover, not for swapover")],
)
def test_a_runbook_of_another_operation_is_not_taken_for_it(tmp_path: Path, name: str, told: str) -> None:
    written(tmp_path, FAILOVER, name)
    with pytest.raises(UsageError, match=told):
        load("swapover", tmp_path)


def test_the_files_of_a_folder_come_by_name_and_only_runbooks(tmp_path: Path) -> None:
    for name in ("swapover.yaml", "failover.yaml", "notes.md"):
        written(tmp_path, "", name)
    assert [path.name for path in files(tmp_path)] == ["failover.yaml", "swapover.yaml"]
