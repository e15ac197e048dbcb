"""The last estimate of each site, kept beside the history: there at once, with its age, without Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dr_ctl.core.clock import stamp
from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.model import Finding, Json
from dr_ctl.engine.runs import write
from dr_ctl.rpo.findings import ESTIMATE_UNREADABLE

if TYPE_CHECKING:
    from dr_ctl.rpo.estimate.result import EstimateAnswer

STALE_AFTER_S = 3600.0


@dataclass(frozen=True, slots=True)
class Stored:
    """An estimate as it was made at `made_at`: `data` and `findings` as `rpo estimate` gave them then."""

    made_at: datetime
    data: dict[str, Any]
    findings: tuple[dict[str, Json], ...] = ()

    def age_s(self, now: datetime) -> float:
        return max(0.0, (now - self.made_at).total_seconds())

    def as_json(self, now: datetime) -> dict[str, Json]:
        """The estimate's own keys, and when it was made. The `stale_s` in it is as of then."""
        return {"made_at": stamp(self.made_at), "age_s": round(self.age_s(now), 3), **self.data}


@dataclass(frozen=True, slots=True)
class Found:
    """Estimate stored of one site, or None; `findings` name a file that cannot be read."""

    stored: Stored | None = None
    findings: tuple[Finding, ...] = field(default_factory=tuple)


def place(history: Path | str, site: str) -> Path:
    """Where it is kept. The name begins as those that readers of the history pass over."""
    return Path(history) / f"_estimate-{site}.json"


def store(history: Path | str, answer: EstimateAnswer, now: datetime) -> None:
    """Keep an estimate, whole or not at all; an answer without one leaves what is there. Raises EnvironmentFault."""
    if answer.estimate is None:
        return
    document: dict[str, Json] = {
        "made_at": stamp(now),
        "data": answer.as_json(),
        "findings": [finding.as_json() for finding in answer.findings],
    }
    try:
        write(place(history, answer.estimate.site), document)
    except OSError as error:
        raise EnvironmentFault(f"the estimate cannot be stored: {error}") from error


def stored(history: Path, site: str) -> Found:
    """Read what is kept of a site."""
    path = place(history, site)
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return Found(_checked(told, site))
    except FileNotFoundError:
        return Found()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        text = f"the stored estimate {path} cannot be read: {error}"
        remedy = "Make it anew with `dr-ctl rpo estimate`; nothing else depends on it."
        return Found(None, (ESTIMATE_UNREADABLE(text, remedy),))


def _checked(told: dict[str, Any], site: str) -> Stored:
    """Raises where something is missing that a reader shows, or of another site."""
    found = Stored(datetime.fromisoformat(told["made_at"]), dict(told["data"]), tuple(told["findings"]))
    total = found.data["total"]
    if found.data["site"] != site or not all({"now", "p99"} <= total[key].keys() for key in ("loss", "age_s")):
        raise ValueError(f"it is no estimate of {site}")
    return found
