"""`plan failover --as-if-lost`: the plan of a disaster that has not happened, and its price today. To be read and
approved beforehand; it is never carried out."""

from dataclasses import replace

from dr_ctl.application import if_lost
from dr_ctl.application.installation import Opened
from dr_ctl.application.request import Question
from dr_ctl.application.result import Result
from dr_ctl.application.verdicts import agreed_today, besides
from dr_ctl.core.document import document
from dr_ctl.core.errors import UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, Severity
from dr_ctl.engine.ask import Ask
from dr_ctl.engine.ending import price_text
from dr_ctl.engine.operations import FAILOVER
from dr_ctl.engine.plan import AlreadyThere, Plan, Refusal
from dr_ctl.topologies.topology import Snapshot


def planned(opened: Opened, asked: Ask, lost: str) -> Result:
    """Decide from a look in which no port of that site answers. What a person would have to accept is accepted for the
    plan, and told."""
    opened.must_know(lost)
    if asked.operation != FAILOVER or lost == asked.target:
        remedy = f"As in `dr-ctl plan failover --to {opened.other(lost)} --as-if-lost {lost}`."
        raise UsageError(f"--as-if-lost {lost}: is for a failover to the other site", remedy=remedy)
    question = Question.of(asked, opened)
    assert question.price is not None  # a failover has one
    looked: Snapshot = opened.topology.observe()
    snapshot = looked.as_if_lost(lost)
    question.price.saw(snapshot)
    decided = question.decide(snapshot)
    if isinstance(decided, Refusal) and decided.plan is not None:
        decided = decided.plan
    refused = question.price.too_high(asked)
    bounds = question.price.bounds()
    findings = [found("DR-PLAN-002", lost=lost, role=looked.roles[lost].value, target=asked.target)]
    findings += if_lost.differing(opened, looked, lost, question.price.differ())
    if refused is not None:
        findings.append(agreed_today(refused, question.price, asked))
    data: dict[str, Json] = {"bounds": dict(bounds), "as_if_lost": lost, "role": looked.roles[lost].value}
    if not isinstance(decided, Plan):
        word = "nothing to do" if isinstance(decided, AlreadyThere) else "not possible"
        why = decided.text if isinstance(decided, AlreadyThere) else _first(decided.findings)
        code = ExitCode.OK if isinstance(decided, AlreadyThere) else ExitCode.PRECHECK_FAILED
        summary = f"as if {lost} was lost: a failover to {asked.target} is {word}: {why}"
        return Result(code, summary, [*decided.findings, *findings], data)
    own = [each for each in besides(decided.findings, lost) if each.id != "DR-PARITY-001"]
    plan = replace(decided, as_if_lost=lost, findings=(*own, *findings))
    summary = f"as if {lost} was lost: {len(plan.steps)} steps to {asked.target}; {price_text(bounds)}"
    text = f"price, if {lost} was lost now: {price_text(bounds)}"
    return Result(ExitCode.OK, summary, plan.findings, {"plan": document(plan), **data}, plan=plan, text=text)


def _first(findings: tuple[Finding, ...]) -> str:
    return next(each.text for each in findings if each.severity is Severity.ERROR)
