"""Approvals of a saved plan: signatures of several people, which the settings may ask for before a run.

Signatures lie beside the plan, each in a file of its own. A run judges the very bytes that it has read as its plan.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dr_ctl.application import plans
from dr_ctl.application.caller import Caller
from dr_ctl.application.findings import APPROVED_ONCE, NO_SIGNER, NOT_APPROVED, SIGNATURE_OF_NOBODY
from dr_ctl.application.result import Result
from dr_ctl.core.errors import UsageError
from dr_ctl.core.loose import mapping
from dr_ctl.core.model import ExitCode, Finding, Json, some
from dr_ctl.engine.operations import REINSTATE
from dr_ctl.engine.plan import Ask, Plan
from dr_ctl.engine.record import ABORTED, NEVER_BEGAN, how_ended
from dr_ctl.engine.runs import RunFiles, Runs, write_bytes
from dr_ctl.processes import ssh
from dr_ctl.settings.model import Installation

_NOTHING_LEFT: Final = (
    *(code.outcome for code in (ExitCode.PRECHECK_FAILED, ExitCode.LOSS_REFUSED, ExitCode.SERVING_SITE_ALIVE)),
    *(code.outcome for code in (ExitCode.DECLINED, ExitCode.REVERTED, ExitCode.DRAIN_TIMEOUT)),
    ABORTED,
    NEVER_BEGAN,
)
"""Ends of runs that have changed nothing, or whose changes were undone."""
_KEYS: Final = ("id_ed25519", "id_ecdsa", "id_rsa")


@dataclass(frozen=True, slots=True)
class Approval:
    """A signature that counts."""

    signer: ssh.Signer
    signature: str

    def as_json(self) -> dict[str, Json]:
        return {"name": self.signer.name, "key": self.signer.key, "signature": self.signature}


@dataclass(frozen=True, slots=True)
class Approvals:
    """The signed bytes, and one signature a person. `others` are signatures that do not count."""

    content: bytes
    by: tuple[Approval, ...]
    others: tuple[Finding, ...]

    @property
    def names(self) -> list[str]:
        return [each.signer.name for each in self.by]

    def as_json(self) -> dict[str, Json]:
        """For the journal: with the file of the run both can be verified by anybody."""
        return {"plan_sha256": hashlib.sha256(self.content).hexdigest(), "by": [each.as_json() for each in self.by]}


@dataclass(frozen=True, slots=True)
class Permit:
    """The word of the settings' `approvals` on a run that is about to begin: approved, refused, or neither where the
    settings ask for nothing."""

    approvals: Approvals | None = None
    refused: Result | None = None

    def keep(self, files: RunFiles) -> None:
        """Keep the plan as it was signed with the run."""
        if self.approvals is not None:
            write_bytes(files.approved, self.approvals.content)


def permit(installation: Installation, runs: Runs, decided: Plan, saved: plans.Saved | None) -> Permit:
    """Judge a run that is about to begin. A run that is gone on with had its permit when it began."""
    wanted = installation.settings.approvals
    if wanted is None or decided.ask.operation not in wanted.of:
        return Permit()
    remedy = _ways(decided.ask, wanted.needed, saved)
    if saved is None:
        text = f"{decided.ask.operation} needs a plan that {wanted.needed} people have signed; nothing was changed"
        return _kept_out(NOT_APPROVED(text, remedy))
    if (blind := why_none(installation)) is not None:
        return _kept_out(blind)
    approvals = _of_file(installation, saved)
    if len(approvals.by) < wanted.needed:
        who = f": {some(approvals.names)}" if approvals.by else ""
        text = f"{saved.path}: {len(approvals.by)} of {wanted.needed} people have signed it{who}; nothing was changed"
        return _kept_out(NOT_APPROVED(text, remedy), *approvals.others)
    if (done := _carried_out(runs, saved.content)) is not None:
        text = f"{saved.path}: was carried out by {done}; nothing was changed"
        return _kept_out(APPROVED_ONCE(text, _ways(decided.ask, wanted.needed, None)))
    return Permit(approvals)


def options(installation: Installation, operation: str) -> tuple[str, ...]:
    """The options without which a run is refused for want of signatures."""
    wanted = installation.settings.approvals
    return ("--plan FILE",) if wanted is not None and operation in wanted.of else ()


def why_none(installation: Installation) -> Finding | None:
    """Why no signature could be verified here; None also where the settings ask for none."""
    wanted = installation.settings.approvals
    if wanted is None:
        return None
    if shutil.which(ssh.PROGRAM) is None:
        return NO_SIGNER(f"{ssh.PROGRAM} is not there, so no approval can be verified", ssh.SshFailed.remedy)
    path = installation.path(wanted.signers)
    try:
        path.read_bytes()
    except OSError as problem:
        text = f"approvals.signers: {path}: {problem.strerror}"
        return NO_SIGNER(text, f"Mend `approvals.signers` in {installation.file.name}.")
    return None


def approve(caller: Caller, path: Path, key: Path | None, *, yes: bool) -> Result:
    """Sign a saved plan for the person who was shown it. Raises `UsageError`, `SshFailed`."""
    installation = caller.installation()
    wanted = installation.settings.approvals
    if wanted is None:
        text = f"{installation.file.name} has no `approvals:`, so no plan needs any"
        raise UsageError(text, remedy="Name signers, how many are needed, and of which operations: docs/settings.md.")
    saved = plans.load(path, "`dr-ctl plan OPERATION --to SITE --out plan.json` writes one.")
    if saved.ask.operation not in wanted.of:
        text = f"{path}: is a plan for {saved.ask.operation}, which needs no approval"
        raise UsageError(text, remedy=f"`approvals.of` in {installation.file.name} lists: {', '.join(wanted.of)}.")
    if (blind := why_none(installation)) is not None:
        return _refused(blind)
    used = key or _own_key()
    if not yes and not caller.people.present():
        return Result(ExitCode.DECLINED, "nobody could be asked, and --yes was not given; nothing was signed")
    if not yes and not caller.people.approves(saved.plan):
        return Result(ExitCode.DECLINED, "a person said no; nothing was signed", already_read=True)
    signature = ssh.sign(saved.content, used)
    signer = ssh.signer_of(saved.content, signature, installation.path(wanted.signers))
    if isinstance(signer, str):
        return _refused(SIGNATURE_OF_NOBODY(f"{used}: {signer}; nothing was written", _listed(installation, used)))
    beside = path.with_name(f"{path.name}.{re.sub(r'[^A-Za-z0-9@._-]', '_', signer.name)}.sig")
    try:
        beside.write_text(signature, encoding="ascii")
    except OSError as problem:
        raise UsageError(f"{beside}: {problem.strerror}", remedy="Copy the plan to where you can write.") from problem
    approvals = _of_file(installation, saved)
    data: dict[str, Json] = {
        "plan": str(path),
        "signature": str(beside),
        "signer": signer.name,
        "key": signer.key,
        "approved_by": [*approvals.names],
        "needed": wanted.needed,
    }
    count = f"{len(approvals.by)} of {wanted.needed}"
    summary = f"{signer.name} has signed {plans.title(saved.plan)}: {count} ({beside})"
    text = "" if len(approvals.by) < wanted.needed else f"Carry it out: `{_with_plan(saved.ask, saved)}`"
    return Result(ExitCode.OK, summary, approvals.others, data, text=text)


def _of_file(installation: Installation, saved: plans.Saved) -> Approvals:
    """Judge every signature beside a plan. Signatures that share a name are of one person."""
    wanted = installation.settings.approvals
    assert wanted is not None  # the caller has looked
    signers = installation.path(wanted.signers)
    by: list[Approval] = []
    others: list[Finding] = []
    for path, text in _signatures(saved.path):
        signer = ssh.signer_of(saved.content, text, signers)
        if isinstance(signer, str):
            others.append(SIGNATURE_OF_NOBODY(f"{path}: does not count: {signer}", f"Remove {path}."))
        elif not any({*signer.names} & {*each.signer.names} or signer.key == each.signer.key for each in by):
            by.append(Approval(signer, text))
    return Approvals(saved.content, tuple(by), tuple(others))


def _signatures(plan: Path) -> Iterator[tuple[Path, str]]:
    try:
        beside = sorted(plan.parent.iterdir())
    except OSError as problem:
        yield plan.parent, f"not read: {problem.strerror}"
        return
    for path in beside:
        if path.name.startswith(f"{plan.name}.") and path.suffix == ".sig":
            try:
                yield path, path.read_text(encoding="utf-8", errors="replace")
            except OSError as problem:
                yield path, f"not read: {problem.strerror}"


def _carried_out(runs: Runs, content: bytes) -> str | None:
    """A run that has carried out the plan of these bytes, if any; a run whose changes were undone does not count."""
    for files in runs.all():
        if _is_of(files, content):
            outcome, _, result = how_ended(files)
            if outcome not in _NOTHING_LEFT and mapping(result.get("data")).get("undone") is not True:
                return f"{files.name}, which ended {outcome}"
    return None


def _is_of(files: RunFiles, content: bytes) -> bool:
    try:
        return files.approved.read_bytes() == content
    except FileNotFoundError:
        return False


def _own_key() -> Path:
    for name in _KEYS:
        if (path := Path.home() / ".ssh" / name).exists():
            return path
    raise UsageError("you have no key in ~/.ssh", remedy="Name the file of an SSH key of yours: --key FILE.")


def _listed(installation: Installation, key: Path) -> str:
    wanted = installation.settings.approvals
    return f"Whoever owns {wanted.signers if wanted else ''} adds a line: your name, and what stands in {key}.pub."


def _ways(ask: Ask, needed: int, saved: plans.Saved | None) -> str:
    file = shlex.quote(str(saved.path)) if saved is not None else "plan.json"
    words = shlex.join(["plan", ask.operation, "--to", ask.target, *_words(ask), "--out", file])
    made = "" if saved is not None else f"`dr-ctl {words}`, then "
    signed = f"{needed} of the signers, each: `dr-ctl plan approve {file}`"
    return f"{made}{signed}; then `{_with_plan(ask, saved)}`."


def _words(ask: Ask) -> list[str]:
    """The options beside operation and site, as a person types them."""
    given: list[tuple[str, object]] = [
        ("--timeout", None if ask.timeout_s is None else f"{ask.timeout_s:g}s"),
        ("--max-outage", None if ask.max_outage_s is None else f"{ask.max_outage_s:g}s"),
        ("--queues", ask.queues),
        *(("--accept-difference", f"{queue}={count}") for queue, count in ask.accept_difference.items()),
        ("--accept-loss", ask.accept_loss),
        ("--accept-duplicates", ask.accept_duplicates),
        ("--presume-down", ask.presume_down),
        ("--silent-since", ask.silent_since),
        ("--reason", ask.reason),
    ]
    words = [word for option, value in given if value is not None for word in (option, str(value))]
    return [*words, "--cut-in-flight"] if ask.cut_in_flight else words


def _with_plan(ask: Ask, saved: plans.Saved | None) -> str:
    where = ask.target if ask.operation == REINSTATE else f"--to {ask.target}"
    return f"dr-ctl {ask.operation} {where} --plan {shlex.quote(str(saved.path)) if saved is not None else 'plan.json'}"


def _kept_out(*findings: Finding) -> Permit:
    return Permit(refused=_refused(*findings))


def _refused(*findings: Finding) -> Result:
    return Result(ExitCode.PRECHECK_FAILED, f"refused: {findings[0].text}", findings)
