"""Runbooks: YAML procedures, read and linted in one pass.

Lint finds runbooks that are not well formed (unknown verb, wrong type) and those that are well formed but unsafe
(activation without a fence). Findings are in the order of the lines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from dr_ctl.core import machine
from dr_ctl.core.errors import UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json, Severity
from dr_ctl.core.notation import composed, seconds

SITES: Final = frozenset({"source", "serving", "target", "lost", "both"})

# The words of each verb, with their types.
VERBS: Final[Mapping[str, Mapping[str, str]]] = {
    "observe": {"site": "site", "lost": "duration"},
    "check": {"operation": "word"},
    "estimate": {"within": "duration", "stored": "bool"},
    "catch-up": {"within": "duration"},
    "quiesce": {"site": "site", "within": "duration"},
    "fence": {"site": "site"},
    "drain": {"to": "site"},
    "verify": {"to": "site"},
    "point-of-no-return": {},
    "activate": {"site": "site"},
    "probe": {"site": "site"},
    "snapshot": {"site": "site"},
    "quarantine": {"site": "site"},
    "settle": {"site": "site"},
    "residue": {"site": "site"},
    "reinstate": {"site": "site"},
    "reconcile": {"site": "site"},
    "unfence": {"site": "site"},
    "hook": {"name": "word"},
    "ask": {"sentence": "word"},
    "hold": {"for": "duration"},
}
MAIN_WORD: Final = {
    "check": "operation",
    "hook": "name",
    "ask": "sentence",
    "hold": "for",
    "drain": "to",
    "verify": "to",
}
# Some verbs take these sites only.
SITE_OF: Final[Mapping[str, Sequence[str]]] = {
    "quiesce": ("source", "serving"),
    "fence": ("source", "serving", "lost"),
    "quarantine": ("lost",),
    **dict.fromkeys(("drain", "verify", "settle", "activate", "probe"), ("target",)),
}

# A rule of the order: the first verb, the later verb, and the reason for the operator.
_MOVE_RULES: Final = (
    ("check", "quiesce", "clients would be disturbed before anything was checked"),
    (
        "quiesce",
        "fence",
        "a closing listener cuts acknowledgements, and those messages are delivered again at the other site",
    ),
    ("fence", "drain", "a zero under load means nothing"),
    ("drain", "verify", "the gate can only be shown once the outflow is empty"),
    ("verify", "activate", "messages that have not arrived would be lost or duplicated"),
    ("fence", "activate", "two sites would serve at the same time"),
    ("verify", "point-of-no-return", "what fails after it is not undone any more"),
    ("point-of-no-return", "activate", "the operator must know when stopping is no longer safe"),
    ("activate", "probe", "the flag of a listener does not prove that clients get in"),
)
Rule = tuple[str, str, str]
ORDER: Final[Mapping[str, Sequence[Rule]]] = {
    "swapover": _MOVE_RULES,
    "failover": (
        ("check", "fence", "a site that still serves would not be noticed"),
        ("fence", "activate", "two sites could serve at the same time"),
        ("quarantine", "activate", "messages of the lost site would reach consumers when it returns"),
        ("fence", "point-of-no-return", "what fails after it is not undone any more"),
        ("quarantine", "point-of-no-return", "what fails after it is not undone any more"),
        ("point-of-no-return", "activate", "the operator must know when stopping is no longer safe"),
        ("activate", "probe", "the flag of a listener does not prove that clients get in"),
    ),
    "failback": _MOVE_RULES,  # after the reinstatement the steps are the same
}
# A hook before the fence whose name has this prefix cuts off a silent site; the fence's line then has the word CUT_OFF.
FENCING_PREFIX: Final = "fence"
CUT_OFF: Final = "cut-off"


@dataclass(frozen=True, slots=True)
class RunbookStep:
    """A line of a runbook. `site` is a role word, `limits` are in seconds."""

    verb: str
    site: str
    line: int
    limits: Mapping[str, float] = field(default_factory=dict)
    words: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Runbook:
    """A procedure that has passed the lint."""

    operation: str
    summary: str
    steps: tuple[RunbookStep, ...]
    path: Path


def shipped() -> Path:
    return machine.shipped("runbooks")


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


def cutting_off(steps: Sequence[RunbookStep]) -> list[RunbookStep]:
    """Return the hooks before the fence whose names say that they cut off a silent site."""
    hooks: list[RunbookStep] = []
    for step in steps:
        if step.verb == "fence":
            return hooks
        if step.verb == "hook" and str(step.words["name"]).startswith(FENCING_PREFIX):
            hooks.append(step)
    return []


def with_hooks(steps: Sequence[RunbookStep], names: Sequence[str]) -> tuple[RunbookStep, ...]:
    lines: list[RunbookStep] = []
    for step in steps:
        if step.verb == "fence":
            lines += [RunbookStep("hook", "both", step.line, words={"name": name}) for name in names]
        lines.append(step)
    return tuple(lines)


def load(operation: str, folder: Path, extra_rules: Sequence[Rule] = ()) -> Runbook:
    """Read the runbook of an operation; raises `UsageError` with every finding if the lint has any."""
    path = folder / f"{operation}.yaml"
    if not path.is_file():
        remedy = "Set `runbooks:` in the settings file to a folder that has it, or leave it out."
        raise UsageError(f"no runbook for {operation} in {folder}", remedy=remedy)
    runbook, findings = lint(path, extra_rules)
    if runbook is None:
        text = "\n".join(finding.text for finding in findings)
        raise UsageError(text, remedy=f"Fix {path}; `dr-ctl runbook lint` checks it.")
    if runbook.operation != operation:
        text = f"{path} is a runbook for {runbook.operation}, not for {operation}"
        raise UsageError(text, remedy="Give each file its own name.")
    return runbook


def lint(path: Path, extra_rules: Sequence[Rule] = ()) -> tuple[Runbook | None, list[Finding]]:
    """Read and check a runbook, which is None after an error. `extra_rules` are rules of the installation."""
    findings, runbook = _Findings(path), None
    try:
        runbook = _runbook(composed(path.read_text(encoding="utf-8")), findings, extra_rules)
    except (OSError, UnicodeDecodeError) as error:
        findings.add(0, f"cannot be read: {error}")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        findings.add(mark.line + 1 if mark else 0, f"is not YAML: {error.problem or error}")
    except (yaml.YAMLError, RecursionError) as error:
        findings.add(0, f"is not YAML: {error}")
    in_order = [finding for _, finding in sorted(findings.by_line, key=lambda row: row[0])]
    return (None if any(finding.severity is Severity.ERROR for finding in in_order) else runbook), in_order


class _Findings:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.by_line: list[tuple[int, Finding]] = []

    def add(self, line: int, text: str, *, severity: Severity = Severity.ERROR) -> None:
        self.put(line, "DR-BOOK-001", severity=severity, wrong=text)

    def put(self, line: int, key: str, **seen: Any) -> None:
        self.by_line.append((line, found(key, line=f"{self.path.name}:{line}", **seen)))


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _scalar(node: yaml.Node) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else "(no word)"


def _runbook(root: yaml.Node | None, findings: _Findings, extra_rules: Sequence[Rule]) -> Runbook | None:
    if not isinstance(root, yaml.MappingNode):
        findings.add(1, "a runbook is a mapping with the keys runbook, about and steps")
        return None
    keys: dict[str, yaml.Node] = {}
    for key, value in root.value:
        word = _scalar(key)
        if word in keys:
            findings.add(_line(key), f"{word} is given twice")
        elif word not in ("runbook", "about", "steps"):
            findings.add(_line(key), f"unknown key {word!r}; a runbook has runbook, about and steps")
        keys.setdefault(word, value)
    operation = _scalar(keys["runbook"]) if "runbook" in keys else ""
    if operation not in ORDER:
        line = _line(keys["runbook"]) if "runbook" in keys else 1
        findings.add(line, f"runbook: is {operation!r}; it names one of {', '.join(ORDER)}")
    about = keys.get("about")
    if about is None:
        findings.add(1, "about: is missing; say in a sentence what the runbook is for", severity=Severity.WARNING)
    elif not isinstance(about, yaml.ScalarNode) or not about.value:
        findings.add(_line(about), "about: is a sentence that says what the runbook is for")
    listed = keys.get("steps")
    if not isinstance(listed, yaml.SequenceNode) or not listed.value:
        findings.add(_line(listed) if listed else 1, "steps: is a list with at least one step")
        return None
    steps = [step for step in (_step(node, findings) for node in listed.value) if step is not None]
    rules = (*ORDER.get(operation, ()), *(extra_rules if ORDER.get(operation) is _MOVE_RULES else ()))
    _order(operation, rules, steps, findings, _line(listed))
    return Runbook(operation, _scalar(about) if about is not None else "", tuple(steps), findings.path)


def _step(node: yaml.Node, findings: _Findings) -> RunbookStep | None:
    line = _line(node)
    if not isinstance(node, yaml.MappingNode) or len(node.value) != 1:
        findings.add(line, "a step is one verb with its values, as in `fence: serving`")
        return None
    verb = _scalar(node.value[0][0])
    if verb not in VERBS:
        findings.add(line, f"unknown verb {verb!r}; the verbs are {', '.join(VERBS)}")
        return None
    needs = node.value[0][1]
    if isinstance(needs, yaml.MappingNode):
        keys = [_scalar(key) for key, _ in needs.value]
        for key in sorted({key for key in keys if keys.count(key) > 1}):
            findings.add(line, f"{verb}: {key} is given twice")
    try:
        values = yaml.SafeLoader("").construct_object(needs, deep=True)
    except (yaml.YAMLError, ValueError):
        findings.add(line, f"{verb}: its values cannot be read; put texts in quotes")
        return RunbookStep(verb, "both", line)
    if not isinstance(values, dict):
        values = {MAIN_WORD.get(verb, "site"): values} if values is not None else {}
    return _filled(verb, values, line, findings)


def _filled(verb: str, values: Mapping[Any, Any], line: int, findings: _Findings) -> RunbookStep:
    known = VERBS[verb]
    limits: dict[str, float] = {}
    words: dict[str, Json] = {}
    site = "both"
    for key, value in values.items():
        kind = known.get(str(key))
        if kind is None:
            findings.add(line, f"{verb}: does not know {key!r}; it takes {', '.join(known) or 'nothing'}")
        elif kind == "site" and (site := str(value)) not in SITES:
            findings.add(line, f"{verb}: {value!r} is not a site word; they are {', '.join(sorted(SITES))}")
        elif kind == "duration":
            try:
                limits[str(key)] = seconds(value)
            except ValueError as error:
                findings.add(line, f"{verb}: {key}: {error}")
        elif kind == "bool" and not isinstance(value, bool):
            findings.add(line, f"{verb}: {key} is true or false, not {value!r}")
        elif kind == "word" and not (isinstance(value, str) and value.strip()):
            findings.add(line, f"{verb}: {key} is a text, not {value!r}")
        elif kind in ("bool", "word"):
            words[str(key)] = value
    if site in SITES and site not in SITE_OF.get(verb, SITES):
        findings.add(line, f"{verb}: is for {' or '.join(SITE_OF[verb])}, not {site}")
    needed = MAIN_WORD.get(verb, "site")
    if known.get(needed) in ("word", "duration") and needed not in values:
        findings.add(line, f"{verb}: lacks its {needed}")
    return RunbookStep(verb, site, line, limits, words)


def _order(operation: str, rules: Sequence[Rule], steps: Sequence[RunbookStep], findings: _Findings, line: int) -> None:
    at: dict[str, RunbookStep] = {}
    place: dict[str, int] = {}
    for number, step in enumerate(steps):
        if step.verb in at and step.verb not in ("observe", "hook", "ask", "hold"):
            findings.put(step.line, "DR-BOOK-002", verb=step.verb)
        # A rule may name a hook.
        for name in (step.verb, f"hook {step.words.get('name', '')}" if step.verb == "hook" else step.verb):
            at.setdefault(name, step)
            place.setdefault(name, number)
    for first, then, because in rules:
        words = {"first": first, "then": then, "because": because}
        if then in at and (first not in at or place[first] > place[then]):
            findings.put(at[then].line, "DR-BOOK-003" if first in at else "DR-BOOK-003.without", **words)
        elif then not in at and first in at and then in ("activate", "probe", "verify", "drain", "fence"):
            findings.put(line, "DR-BOOK-003.missing", **words)
    if operation in ORDER and "activate" not in at:
        findings.put(line, "DR-BOOK-003.no_activate")
    for step in steps:
        if step.verb == "check" and step.words.get("operation", operation) != operation:
            findings.add(step.line, f"check: is for {step.words['operation']}, but the runbook is for {operation}")
