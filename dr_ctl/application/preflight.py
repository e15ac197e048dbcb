"""The estimate of a run. A fresh stored estimate is used; else a process beside the checks makes one, and is killed
when the run needs to go on."""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from dr_ctl.application import at_stake
from dr_ctl.application.estimates import objectives, of_site, request
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Severity
from dr_ctl.core.notation import duration
from dr_ctl.core.system import Clock, system
from dr_ctl.engine.ports import Done, NotNeeded, Outcome
from dr_ctl.rpo.estimate.request import FRESH_S, Estimating, Stored
from dr_ctl.rpo.estimate.result import Objectives
from dr_ctl.settings.model import Installation

_POLL_S: Final = 0.05


class Preflight:
    """Implements `Estimator`. Missing history, Java or Spark is a finding, never an obstacle."""

    def __init__(self, installation: Installation, source: str, clock: Clock) -> None:
        self._installation, self._source, self._clock = installation, source, clock
        self._estimating: Estimating | None = None
        self._stored: Stored | None = None

    def begin(self) -> None:
        stored = of_site(self._installation, self._source).stored
        # An estimate dated in the future, by a clock that ran ahead, is not fresh.
        if stored is not None and timedelta() <= system().now() - stored.made_at <= timedelta(seconds=FRESH_S):
            self._stored = stored
            return
        history = self._installation.history
        # What a store elsewhere has is for the estimate to find out: nobody waits for it here.
        if history.folder is None or next(history.near.glob("date=*/site=*/*.parquet"), None) is not None:
            self._estimating = Estimating(request(self._installation))

    def end(self, *, within_s: float, wait: Callable[[float], None]) -> Outcome:
        if self._stored is not None:
            return _stored(self._stored, objectives(self._installation))
        estimating = self._estimating
        if estimating is None:
            text = "no history: how much a failure would lose is not known"
            remedy = "Let `dr-ctl monitor` run; it writes what the estimate reads."
            return NotNeeded(text, findings=(found("DR-RPO-001", text, remedy, severity=Severity.INFO),))
        until = self._clock.monotonic() + within_s
        while estimating.runs and self._clock.monotonic() < until:
            wait(_POLL_S)
        is_late, answer = estimating.runs, estimating.answer()
        self.abandon()
        if is_late:
            text = f"the estimate took longer than {within_s:g} s and was ended"
            return NotNeeded(text, findings=(found("DR-RPO-008", text, "`dr-ctl rpo estimate` waits for it."),))
        return _outcome(answer, objectives(self._installation))

    def abandon(self) -> None:
        if self._estimating is not None:
            self._estimating.end()


def _stored(estimate: Stored, limits: Objectives | None) -> Outcome:
    now = system().now()
    text = _summary({"data": estimate.data}, limits)
    text = f"{text}; as stored {duration(round(estimate.age_s(now)))} ago"
    return Done(text, {"estimate": estimate.as_json(now)}, _findings(estimate.findings))


def _outcome(answer: dict[str, Any], limits: Objectives | None) -> Outcome:
    if "error" in answer:
        finding = found("DR-RPO-009", f"no estimate: {answer['error']}", str(answer.get("remedy", "")))
        return NotNeeded(finding.text, findings=(finding,))
    return Done(_summary(answer, limits), {"estimate": answer["data"]}, _findings(answer["findings"]))


def _findings(rows: Iterable[Mapping[str, Any]]) -> tuple[Finding, ...]:
    return tuple(Finding(each["id"], Severity(each["severity"]), each["text"], each["remedy"]) for each in rows)


def _summary(answer: dict[str, Any], limits: Objectives | None) -> str:
    data: dict[str, Any] = answer["data"] or {}
    if data.get("total") is None:
        return "no estimate from this history"
    now, p99 = (at_stake.figures(data["total"], column) for column in ("now", "p99"))
    text = f"at the last reading of {data['site']}, {data['read_at']}: {now}; p99 of all readings: {p99}"
    return f"{text}; {at_stake.verdict(data, limits)}"
