"""Saved plans: the title, the file that `plan --out` writes and `--plan` reads, and the signatures beside that file.

A saved plan is valid as long as the state that it was decided from, without counters, is the same. A signature is
checked against the bytes that were read as the plan.
"""

import hashlib
import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from dr_ctl.application.caller import Caller
from dr_ctl.application.result import Result
from dr_ctl.core.document import document, key, mapping, optional
from dr_ctl.core.document import read as read_back
from dr_ctl.core.errors import UsageError, writing
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, Role, brief
from dr_ctl.engine.operations import AT_SOURCE, REINSTATE, SINGLE_STEPS
from dr_ctl.engine.plan import Plan, PlannedStep, Refusal, Spec
from dr_ctl.engine.record import ABORTED, NEVER_BEGAN, how_ended, record
from dr_ctl.engine.runs import Runs, write
from dr_ctl.processes import ssh
from dr_ctl.rpo.bounds.result import Bounds
from dr_ctl.rpo.estimate.request import AgedEstimate
from dr_ctl.settings.model import Installation

RESIDUE: Final = "what a returned site still holds for the other"

_NOTHING_LEFT: Final = (
    *(code.outcome for code in (ExitCode.PRECHECK_FAILED, ExitCode.LOSS_REFUSED, ExitCode.SERVING_SITE_ALIVE)),
    *(code.outcome for code in (ExitCode.DECLINED, ExitCode.REVERTED, ExitCode.DRAIN_TIMEOUT)),
    ABORTED,
    NEVER_BEGAN,
)
"""The outcomes of runs that have changed nothing, or whose changes were undone."""


def title(plan: Plan) -> str:
    operation = plan.spec.operation
    if plan.as_if_lost is not None:
        return f"{operation} from {plan.source} to {plan.target}, as if {plan.as_if_lost} was lost"
    if plan.spec.units is not None:
        operation = f"{operation} of {brief(plan.spec.units)}"
    if plan.spec.operation in AT_SOURCE:
        return f"{operation} {plan.source}"
    if plan.spec.operation == REINSTATE:
        return f"{operation} {plan.target}"
    if plan.spec.operation in SINGLE_STEPS:
        return f"{operation} to {plan.target}"
    return f"{operation} from {plan.source} to {plan.target}"


def save(plan: Plan, out: Path) -> None:
    """Write a plan for `--plan`; raises `UsageError`."""
    with writing(f"--out {out}"):
        write(out, document(plan))


@dataclass(frozen=True, slots=True)
class StoredFigures:
    """The stored estimate beside a plan; None without an estimate."""

    estimate: AgedEstimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanData:
    """Data of `plan`, and of a dry run."""

    plan: Plan | None = optional()
    stored: StoredFigures | None = optional(flat=True)
    bounds: Bounds | None = optional()
    residue: Mapping[str, Json] | None = optional(RESIDUE)
    as_if_lost: str | None = optional()
    role: Role | None = optional()


@dataclass(frozen=True, slots=True)
class Saved:
    path: Path
    content: bytes
    plan: Plan


def load(path: Path, remedy: str, *, prefix: str = "") -> Saved:
    """Read a saved plan; raises `UsageError`, with a remedy, and a prefix before the file's name."""
    try:
        content = path.read_bytes()
        row = json.loads(content)
        saved = Saved(path, content, read_back(Plan, {**row, "steps": row["steps"]}))
    except OSError as problem:
        raise UsageError(f"{prefix}{path}: {problem.strerror or problem}", remedy=remedy) from problem
    except (ValueError, KeyError, TypeError) as problem:
        why = f"{problem} is missing" if isinstance(problem, KeyError) else str(problem)
        raise UsageError(f"{prefix}{path}: is not a saved plan: {why}", remedy=remedy) from problem
    if (lost := saved.plan.as_if_lost) is not None:
        why = f"{prefix}{path}: was made as if {lost} was lost, and is never executed"
        again = f"`dr-ctl plan {saved.plan.spec.operation} --to {saved.plan.spec.target}` plans by the present state."
        raise UsageError(why, remedy=again)
    return saved


def read(path: Path, asked: Spec) -> Saved:
    """Read the saved plan of a command; raises `UsageError`, also if it is for another command."""
    again = f"`dr-ctl plan {asked.operation} --to {asked.target} --out {path}` writes it again."
    saved = load(path, again, prefix="--plan ")
    if (saved.plan.spec.operation, saved.plan.spec.target) != (asked.operation, asked.target):
        why = f"--plan {path}: is a plan for {saved.plan.spec.operation} to {saved.plan.spec.target}"
        raise UsageError(why, remedy=again)
    typed = replace(asked, reason=saved.plan.spec.reason)  # a reason is no part of the plan
    planned = replace(saved.plan.spec, units=None) if saved.plan.spec.queues is not None else saved.plan.spec
    if typed not in (
        planned,
        Spec(asked.operation, asked.target, max_outage_s=asked.max_outage_s, reason=typed.reason),
    ):
        text = f"--plan {path}: the options of the command are not those of the plan"
        raise UsageError(text, remedy="Leave them out: the plan has its own.")
    return saved


def same(before: Plan, now: Plan, saved: Path | None = None) -> Plan | Refusal:
    """Return the new plan, or a refusal with each difference from the plan before, which may be `saved`."""
    again, how = f"dr-ctl plan {before.spec.operation} --to {before.spec.target}", "shown" if saved is None else "saved"
    again = f"`{again}`" if saved is None else f"`{again} --out {saved}`"
    bases = (json.loads(json.dumps(dict(plan.basis))) for plan in (before, now))
    changes = list(_changes(*bases))
    if not changes and [_shape(step) for step in before.steps] != [_shape(step) for step in now.steps]:
        changes = ["the steps differ"]
    findings = tuple(found("DR-PLAN-001", change=change, how=how, again=again) for change in changes)
    return Refusal(findings) if findings else now


def _shape(step: PlannedStep) -> tuple[str, str, tuple[tuple[str, ...], ...]]:
    """Return the parts of a step that must be the same."""
    return step.verb, step.site, tuple((call.site, call.unit, call.goal.value, call.resource) for call in step.calls)


def _changes(was: Json | Mapping[str, Any], now: Json | Mapping[str, Any], at: str = "") -> Iterator[str]:
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*was, *now]):
            yield from _changes(was.get(key), now.get(key), f"{at} {key}".strip())
    elif isinstance(was, list) and isinstance(now, list):
        removed = [str(item) for item in was if item not in now]
        new = [str(item) for item in now if item not in was]
        if removed or new:
            parts = [f"without {', '.join(removed)}"] * bool(removed) + [f"with {', '.join(new)}"] * bool(new)
            yield f"{_describe(at)} now {' and '.join(parts)}"
        elif was != now:
            yield f"{_describe(at)} in another order"
    elif was != now and at == "settings":
        yield "the settings file has changed"
    elif was != now:
        yield f"{_describe(at)} was {_value_text(was)}, is {_value_text(now)}"


_LABELS: Final = {"acceptors": "acceptor open:", "link": "link started:", "shut_out": "clients' roles kept out"}


def _describe(at: str) -> str:
    what, _, rest = at.partition(" ")
    site, _, rest = rest.partition(" ")
    pair, _, rest = rest.partition(" ")
    key, _, name = rest.partition(" ")
    return f"{site}/{pair}: {_LABELS.get(key, key)} {name}".rstrip() if what == "brokers" and key else at


def _value_text(value: Json | Mapping[str, Any]) -> str:
    return {"None": "not there", "True": "yes", "False": "no"}.get(str(value), str(value))


@dataclass(frozen=True, slots=True)
class Signature:
    signer: ssh.Signer = field(metadata=key(flat=True))
    signature: str


@dataclass(frozen=True, slots=True)
class Approvals:
    """The digest of a signed plan, and one signature per person, as the journal stores them."""

    plan_sha256: str
    by: tuple[Signature, ...]

    @property
    def names(self) -> list[str]:
        return [signature.signer.name for signature in self.by]


@dataclass(frozen=True, slots=True)
class ApproveData:
    plan: Path
    signature: Path
    signer: str
    key: str
    approved_by: Sequence[str]
    needed: int


def permit(installation: Installation, spec: Spec, saved: Saved | None, runs: Runs) -> Approvals | Result | None:
    """Return the approvals of a new run, or its refusal; None if no approval is needed."""
    wanted = installation.settings.approvals
    if wanted is None or spec.operation not in wanted.of:
        return None
    needed, commands = wanted.needed, _commands(spec, wanted.needed)
    if saved is None:
        return _refused(found("DR-APPROVAL-001.no_plan", operation=spec.operation, needed=needed, ways=commands))
    if (blind := why_no_approval(installation)) is not None:
        return _refused(blind)
    approvals, others = _read_signatures(installation, saved)
    if (count := len(approvals.by)) < needed:
        who = f": {brief(approvals.names)}" if approvals.by else ""
        missing, key = _commands(spec, needed, saved.path, signed=count), "DR-APPROVAL-001.too_few"
        return _refused(found(key, path=saved.path, needed=needed, who=who, count=count, ways=missing), *others)
    if (earlier := _earlier_run(runs, approvals.plan_sha256)) is not None:
        return _refused(found("DR-APPROVAL-002", path=saved.path, run=earlier, ways=commands))
    return approvals


def why_no_approval(installation: Installation) -> Finding | None:
    """Report why no signature can be verified here; None if it can, or if the settings need no approval."""
    wanted = installation.settings.approvals
    if wanted is None:
        return None
    if shutil.which(ssh.PROGRAM) is None:
        return found("DR-APPROVAL-004.no_program", remedy=ssh.SshFailed.remedy, program=ssh.PROGRAM)
    path = installation.path(wanted.signers)
    try:
        path.read_bytes()
    except OSError as problem:
        return found("DR-APPROVAL-004.signers", path=path, why=problem.strerror or problem, file=installation.file.name)
    return None


def approve(caller: Caller, path: Path, key: Path | None, *, yes: bool) -> Result:
    """Show a saved plan to a person, and sign it. Raises `UsageError`, `SshFailed`."""
    installation = caller.installation()
    wanted = installation.settings.approvals
    if wanted is None:
        text = f"{installation.file.name} has no `approvals:`, so no plan needs any"
        raise UsageError(text, remedy="Name signers, how many are needed, and of which operations: docs/settings.md.")
    saved = load(path, "`dr-ctl plan OPERATION --to SITE --out plan.json` writes one.")
    if saved.plan.spec.operation not in wanted.of:
        text = f"{path}: is a plan for {saved.plan.spec.operation}, which needs no approval"
        raise UsageError(text, remedy=f"`approvals.of` in {installation.file.name} lists: {', '.join(wanted.of)}.")
    if (blind := why_no_approval(installation)) is not None:
        return _refused(blind)
    if (why_not := caller.why_not(lambda: caller.people.approves(saved.plan), yes=yes)) is not None:
        return Result(ExitCode.DECLINED, f"{why_not}; nothing was signed")
    used = key or Path.home() / ".ssh" / "id_ed25519"
    signature = ssh.sign(saved.content, used)
    signer = ssh.signer_of(saved.content, signature, installation.path(wanted.signers))
    if isinstance(signer, str):
        return _refused(found("DR-APPROVAL-003.key", signers=wanted.signers, key=used, why=signer))
    beside = path.with_name(f"{path.name}.{re.sub(r'[^A-Za-z0-9@._-]', '_', signer.name)}.sig")
    with writing(beside, "Copy the plan to where you can write."):
        beside.write_text(signature, encoding="ascii")
    approvals, others = _read_signatures(installation, saved)
    data = ApproveData(path, beside, signer.name, signer.key, approvals.names, wanted.needed)
    count = f"{len(approvals.by)} of {wanted.needed}"
    summary = f"{signer.name} has signed {title(saved.plan)}: {count} ({beside})"
    text = "" if len(approvals.by) < wanted.needed else f"Carry it out: `{_with_plan(saved.plan.spec, path)}`"
    return Result(ExitCode.OK, summary, others, data, text=text)


def _read_signatures(installation: Installation, saved: Saved) -> tuple[Approvals, tuple[Finding, ...]]:
    """Verify every signature beside a plan. Signatures with a common name or key are of one person."""
    wanted = installation.settings.approvals
    assert wanted is not None  # the callers have checked this
    signatures: list[Signature] = []
    others: list[Finding] = []
    for path in sorted(saved.path.parent.glob("*.sig")):
        if not path.name.startswith(f"{saved.path.name}."):
            continue
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
            signer = ssh.signer_of(saved.content, text, installation.path(wanted.signers))
        except OSError as problem:
            signer = f"not read: {problem.strerror or problem}"
        if isinstance(signer, str):
            others.append(found("DR-APPROVAL-003.signature", path=path, why=signer))
        elif not any({*signer.names} & {*other.signer.names} or signer.key == other.signer.key for other in signatures):
            signatures.append(Signature(signer, text))
    return Approvals(hashlib.sha256(saved.content).hexdigest(), tuple(signatures)), tuple(others)


def _earlier_run(runs: Runs, plan_sha256: str) -> str | None:
    """Name a run that has executed that plan, if any; a run whose changes were undone does not count."""
    for files in runs.all():
        if record(files).plan_sha256 == plan_sha256:
            outcome, _, result = how_ended(files)
            if outcome not in _NOTHING_LEFT and mapping(result.get("data")).get("undone") is not True:
                return f"{files.name}, which ended {outcome}"
    return None


def _commands(spec: Spec, needed: int, saved: Path | None = None, *, signed: int = 0) -> str:
    """Name the commands that lead to a plan with enough signatures; `signed` is how many a saved plan has."""
    plan = saved or Path("plan.json")
    words = shlex.join(["plan", spec.operation, "--to", spec.target, *spec.typed(), "--out", str(plan)])
    first = "" if saved is not None else f"`dr-ctl {words}`, then "
    signers = f"{needed - signed} more of the signers" if signed else f"{needed} of the signers"
    each = ", each" if needed - signed > 1 else ""
    sign = f"{signers}{each}: `dr-ctl plan approve {shlex.quote(str(plan))}`"
    return f"{first}{sign}; then `{_with_plan(spec, plan)}`."


def _with_plan(spec: Spec, plan: Path) -> str:
    site = spec.target if spec.operation == REINSTATE else f"--to {spec.target}"
    return f"dr-ctl {spec.operation} {site} --plan {shlex.quote(str(plan))}"


def _refused(*findings: Finding) -> Result:
    return Result(ExitCode.PRECHECK_FAILED, f"refused: {findings[0].text}", findings)
