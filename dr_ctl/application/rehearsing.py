"""`rehearse`: the whole path of a move without risk, on the real brokers or on a twin of the installation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from dr_ctl.application import run
from dr_ctl.application.caller import Caller
from dr_ctl.application.installation import OpenInstallation
from dr_ctl.application.result import Result
from dr_ctl.core.document import key, mapping, of_file
from dr_ctl.core.errors import UsageError
from dr_ctl.core.model import ExitCode
from dr_ctl.engine.operations import REHEARSE, REHEARSE_CLEAN
from dr_ctl.engine.plan import RunOptions, Spec
from dr_ctl.engine.roles import sites_serving
from dr_ctl.engine.runs import Runs

GROUP: Final = "dr_ctl.rehearsals"


@dataclass(frozen=True, slots=True)
class TwinData:
    at: datetime
    topology: str
    sites: Sequence[str]
    queues: Mapping[str, int]
    notes: Sequence[str]
    variations: Sequence[Any] = field(metadata=key(shape=list[dict[str, Any]]))
    ends: Mapping[str, int] = field(metadata=key(description="by exit code: how many commands ended so"))
    outage_s: Mapping[str, float] | None
    took_s: float = field(metadata=key(digits=1))
    evidence: Path


def on_brokers(caller: Caller, how: RunOptions, *, clean: bool, timeout_s: float | None) -> Result:
    """Rehearse with a queue of dr-ctl's own from the serving site (else the first), or remove its remains."""
    with OpenInstallation.of(caller) as opened:
        serving = sites_serving(opened.topology.read())
        target = opened.other(serving[0]) if len(serving) == 1 else opened.sites[1]
    spec = Spec(REHEARSE_CLEAN if clean else REHEARSE, target, reason=how.reason, timeout_s=timeout_s)
    return run.run(caller, spec, how)


def on_twin(caller: Caller, *, variations: int, seed: int) -> Result:
    """Rehearse moves on a twin, each from its own seed. Raises `UsageError` without the twin's package."""
    for entry_point in entry_points(group=GROUP, name="twin"):
        result: Result = entry_point.load()(caller, variations=variations, seed=seed)
        return result
    remedy = "Install the whole distribution of dr-ctl, or rehearse on the real brokers: `dr-ctl rehearse --on canary`."
    raise UsageError("no package here has a twin to rehearse on", remedy=remedy)


def last(runs: Runs) -> datetime | None:
    """Return the time of the last successful rehearsal on the real brokers, by the runs of this STATE."""
    for files in reversed(runs.all()):
        name = files.name.split("-")
        exit_code = mapping(of_file(files.result)).get("exit_code")
        if name[1:2] == [REHEARSE] and name[2:3] != ["clean"] and exit_code in (ExitCode.OK, ExitCode.WARNINGS):
            return datetime.strptime(name[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    return None
