"""The handler of `probe` at Classic brokers, which also reports new dead letters."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Json, brief
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Done, Move, NotNeeded, Outcome, StepContext
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.verbs import proving
from dr_ctl.topologies.common.view import Broker


def probe(tools: Tools[Any], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Probe as at any broker, and count the target's dead letters before it was opened and now: clients that reject a
    backlog fill that queue, and nothing ships a dead letter to the other site."""
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
        queues = brief([f"{name}: {count}" for name, count in grown.items()])
        findings = (*findings, found("DR-DLQ-001", target=move.target, queues=queues))
    return replace(outcome, evidence={**outcome.evidence, "dead_letters": counted}, findings=findings)


def dead_letters(views: Iterable[Broker]) -> Mapping[str, int]:
    """Count the dead letters of each dead-letter queue of a site, by broker and queue."""
    return {
        f"{view} {queue.name}": queue.depth
        for view in views
        for queue in view.queues
        if queue.dead_letter_address is not None and queue.depth_known
    }
