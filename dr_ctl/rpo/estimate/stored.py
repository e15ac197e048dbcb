"""The last estimate of each site, kept beside the history: there at once, with its age, without Spark."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dr_ctl.core.clock import stamp
from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.model import Finding, Json
from dr_ctl.core.system import system
from dr_ctl.engine.runs import write
from dr_ctl.rpo.estimate.result import EstimateAnswer
from dr_ctl.rpo.findings import ESTIMATE_UNREADABLE
from dr_ctl.settings.model import Place

FRESH_S: Final = 900.0
"""A monitor makes an estimate every five minutes. A run takes one as young as this, and an older one is told."""
_NAME: Final = "_estimate-{site}.json"
"""The name begins as those that readers of the history pass over."""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


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
    """Where it is kept on this machine."""
    return Path(history) / _NAME.format(site=site)


def store(history: Place, answer: EstimateAnswer, now: datetime) -> None:
    """Keep an estimate, whole or not at all, on this machine and where the history is; an answer without one leaves
    what is there. Raises EnvironmentFault."""
    if answer.estimate is None:
        return
    document: dict[str, Json] = {
        "made_at": stamp(now),
        "data": answer.as_json(),
        "findings": [finding.as_json() for finding in answer.findings],
    }
    try:
        history.near.mkdir(parents=True, exist_ok=True)
        write(place(history.near, answer.estimate.site), document)
        if history.folder is None:
            from dr_ctl.rpo.history.store import Store  # noqa: PLC0415 - as below

            text = json.dumps(document).encode()
            Store.of(history.where).write(_NAME.format(site=answer.estimate.site), lambda sink: sink.write(text))
    except OSError as error:
        raise EnvironmentFault(f"the estimate cannot be stored: {error}") from error


def stored(history: Path | Place, site: str) -> Found:
    """Read what is kept of a site: on this machine; where that is nothing or old, where the history is."""
    if isinstance(history, Path):
        return _read(history, site)
    found = _read(history.near, site)
    now = system().now()
    if history.folder is not None or (found.stored is not None and found.stored.age_s(now) < FRESH_S):
        return found
    from dr_ctl.rpo.history.sources import read  # noqa: PLC0415 - what reads Parquet takes a tenth of a second

    text, _ = read(history, lambda files: files.text(_NAME.format(site=site)))
    there = _parsed(text, history.shown, site) if text is not None else Found()
    return max(found, there, key=lambda each: each.stored.made_at if each.stored is not None else _NEVER)


def _read(folder: Path, site: str) -> Found:
    path = place(folder, site)
    try:
        return _parsed(path.read_text(encoding="utf-8"), path, site)
    except FileNotFoundError:
        return Found()
    except OSError as error:
        return _unreadable(path, error)


def _parsed(text: str, where: Path | str, site: str) -> Found:
    try:
        return Found(_checked(json.loads(text), site))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return _unreadable(where, error)


def _unreadable(where: Path | str, error: Exception) -> Found:
    text = f"the stored estimate {where} cannot be read: {error}"
    remedy = "Make it anew with `dr-ctl rpo estimate`; nothing else depends on it."
    return Found(None, (ESTIMATE_UNREADABLE(text, remedy),))


def _checked(told: dict[str, Any], site: str) -> Stored:
    """Raises where something is missing that a reader shows, or of another site."""
    found = Stored(datetime.fromisoformat(told["made_at"]), dict(told["data"]), tuple(told["findings"]))
    total = found.data["total"]
    if found.data["site"] != site or not all({"now", "p99"} <= total[key].keys() for key in ("loss", "age_s")):
        raise ValueError(f"it is no estimate of {site}")
    return found
