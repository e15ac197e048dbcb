"""The handlers of `quiesce` and `probe` at all Classic brokers, which do more than those at other brokers."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Json, brief
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Done, Move, NotNeeded, Outcome, StepContext, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.classic.beans import PAUSES
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.verbs import proving
from dr_ctl.topologies.common.verbs import quiesce as common_quiesce
from dr_ctl.topologies.common.view import Broker


def draft_quiesce(rules: Rules, step: RunbookStep, snapshot: Snapshot[Any], move: Move) -> StepPlan:
    """Plan no pause where the console's policy refuses it: dispatch goes on until the listeners close."""
    if any(PAUSES in view.denied for view in snapshot.views(move.source)):
        limits = {"within": step.limits.get("within", rules.timeouts.quiesce_s)}
        return StepPlan(move.source, "clients are not let finish: its console refuses to pause queues", limits=limits)
    return common_quiesce.draft(rules, step, snapshot, move)


def quiesce(tools: Tools[Any], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Count the messages that clients hold where queues may not be paused: a cut brings them again."""
    views = tools.observer.read_at(move.source)
    if not any(PAUSES in view.denied for view in views):
        return common_quiesce.act(tools, step, move, context)
    held = sum(queue.delivering for view in views for queue in view.business.values())
    finding = found("DR-QUIESCE-002", count=held, but="", why=f"the console of {move.source} refuses to pause")
    return Done.of(finding, evidence={"come_again": held})


def probe(tools: Tools[Any], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Probe as at any broker, and count the target's dead letters before it was opened and now: a backlog that a
    client gives up at once ends there, and nothing ships a dead letter to the other site."""
    outcome = proving.probe(tools, step, move, context)
    if not isinstance(outcome, Done | NotNeeded):
        return outcome
    before = dead_letters(sample.target for sample in tools.gate.samples.values())
    try:
        after = dead_letters(tools.observer.read_at(move.target))
    except BrokerError as error:
        return replace(outcome, evidence={**outcome.evidence, "dead_letters": f"not read: {error}"})
    counted: dict[str, Json] = {"before": dict(before), "after": dict(after)}
    grown = {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}
    findings = outcome.findings
    if grown and tools.gate.samples:
        more = brief([f"{name}: {count}" for name, count in grown.items()])
        findings = (*findings, found("DR-DLQ-001", target=move.target, queues=more))
    return replace(outcome, evidence={**outcome.evidence, "dead_letters": counted}, findings=findings)


def dead_letters(views: Iterable[Broker]) -> Mapping[str, int]:
    """Count the dead letters of each dead-letter queue of a site, by broker and queue."""
    return {
        f"{view} {queue.name}": queue.depth
        for view in views
        for queue in view.queues
        if queue.dead_letter_address is not None and queue.depth_known
    }
