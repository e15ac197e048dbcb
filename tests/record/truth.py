"""Invariants of every run with any fault: the reported end is true, nothing is lost, at most one site is open."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dr_ctl_lab.played import PlayedTwin
from tests.broker.driving import Ended
from tests.twin.matrix import NOTHING_CHANGED, Judge, Operation, as_undone, at_rest, bare, effects, serving, unprocessed


class Scene:
    def __init__(self, twin: PlayedTwin, patch: pytest.MonkeyPatch) -> None:
        self.twin, self.judge = twin, Judge(twin, patch)
        self.before, self.had, self.served = at_rest(twin), unprocessed(twin), serving(twin)
        self.after: dict[str, Any] = {}
        self.effects: list[tuple[str, str, str]] = []
        self.killed = False

    def ended(self, *, killed: bool) -> None:
        self.after, self.effects, self.killed = at_rest(self.twin), effects(self.twin), killed


def true_to(scene: Scene, operation: Operation, ended: Ended, undisturbed: Scene | None) -> None:
    twin, document = scene.twin, ended.document
    assert scene.judge.twice == [], document
    assert scene.had <= unprocessed(twin), document
    if scene.killed and undisturbed is not None:
        assert ended.code == 0, document
        assert bare(scene.after) == bare(undisturbed.after)
        assert scene.effects == undisturbed.effects, "each effect once"
    elif ended.code == 0:
        assert operation.wanted(twin), document
    elif ended.code in NOTHING_CHANGED:
        assert scene.after == scene.before, document
    elif ended.code in (20, 24) and document["data"].get("undone"):
        assert as_undone(scene.after, twin, operation) == as_undone(scene.before, twin, operation), document
        assert serving(twin) == scene.served
    elif ended.code == 21:
        assert set(operation.serving) <= set(serving(twin)), document
    elif ended.code == 22:
        assert "look at" in document["summary"], document
    elif ended.code == 23:
        assert serving(twin) == () or scene.after != scene.before, document
        assert "DR-RUN-001" in [finding["id"] for finding in document["findings"]], document
    else:
        # A drain alone undoes nothing and opens no site.
        assert (operation.name, ended.code) == ("drain", 24), document
        assert serving(twin) == ()


def as_planned(plan: dict[str, Any], run: Path) -> None:
    """A run sends every unconditional call of its plan, no unplanned call, and none more often than planned. Arguments
    are not compared: they have times, and ids that the run finds."""

    def call(verb: str, row: dict[str, Any]) -> tuple[str, ...]:
        keys = ("site", "pair", "goal", "thing", "bean", "operation", "workload")
        return (verb, *(str(row.get(key)) for key in keys))

    lines = [json.loads(line) for line in (run / "journal.jsonl").read_text(encoding="utf-8").splitlines()]
    sent = Counter(call(line["step"].partition("-")[2], line["call"]) for line in lines if line["kind"] == "intent")
    planned = [(call(step["verb"], item), item) for step in plan["steps"] for item in step["calls"]]
    at_most = Counter[tuple[str, ...]]()
    for key, value in planned:
        at_most[key] += value["at_most"]
    assert not {key for key, step in planned if step["when"] is None} - sent.keys(), "certain, and not sent"
    assert not sent - at_most, "sent, and not planned"


def tells_who_serves(twin: PlayedTwin, status: Ended) -> None:
    """After a killed run, `status` reports no open site as closed."""
    roles = {site: item["role"] for site, item in status.document["data"]["sites"].items()}
    assert {roles[site] for site in serving(twin)} <= {"serving", "unknown", "sick"}, status.document
    assert {site for site, role in roles.items() if role == "serving"} <= {*serving(twin)}, status.document
