"""The findings of `workloads`."""

from typing import Final

from dr_ctl.core.findings import FindingKind
from dr_ctl.core.model import Severity

SINGLETON_AT_BOTH: Final = FindingKind(
    "DR-WORK-001",
    Severity.ERROR,
    "A workload that must run at one site only runs at both.",
    "Stop the workload by hand where it must not run, and look at what both have done; run the command again. No move"
    " happens before.",
    "The effect of your own command. Work that both did meanwhile may be done twice.",
)
WORKLOAD_NOT_READ: Final = FindingKind(
    "DR-WORK-002",
    Severity.ERROR,
    "dr-ctl could not read whether a workload runs, and does not take it for stopped.",
    "Bring what manages it back, or mend its part of the settings; `dr-ctl status` asks again.",
    "A look; it changes nothing.",
)
WORKLOAD_DID_NOT_STOP: Final = FindingKind(
    "DR-WORK-003",
    Severity.ERROR,
    "A workload did not stop in its time. In a planned move the run ended before the fence, and those that had "
    "stopped run again; beside a lost site it is a warning.",
    "See what the workload waits for, or give it a longer `timeout`; run the same command again.",
    "The effect of the workload's own stop command.",
    undo="By itself where it fails.",
)
WORKLOAD_NOT_STARTED: Final = FindingKind(
    "DR-WORK-004",
    Severity.ERROR,
    "The site serves, and a workload could not be started there, or was not because it is a singleton that may run at"
    " the other site.",
    "Mend what keeps the workload from starting. Where both sites answer, `dr-ctl unfence SITE` starts it; otherwise "
    "start it there by hand.",
    "`unfence` starts the workloads that do not run at the serving site, and lifts pauses that runs have left there.",
    undo="`dr-ctl quiesce SITE` stops it, and pauses the queues.",
)
WORKLOAD_AT_STANDBY: Final = FindingKind(
    "DR-WORK-005",
    Severity.WARNING,
    "A workload runs at a site that does not serve.",
    "Stop it there by hand, unless it is meant to run.",
    "The effect of the workload's own stop command.",
)
WORKLOAD_NOT_RUNNING: Final = FindingKind(
    "DR-WORK-006",
    Severity.WARNING,
    "A workload does not run at the site that serves, or not all of it.",
    "`dr-ctl unfence SITE` starts it where both sites answer, else start it there by hand, unless somebody stopped it"
    " on purpose.",
    "`unfence` starts the workloads that do not run at the serving site, and lifts pauses that runs have left there.",
    undo="`dr-ctl quiesce SITE` stops it, and pauses the queues.",
)
WORKLOAD_CANNOT_BE_ASKED: Final = FindingKind(
    "DR-WORK-007",
    Severity.WARNING,
    "A workload of a lost site cannot be asked. The workload may run there, or run again once that site is back.",
    "Keep it from starting there; see that it is stopped before the site is taken in again with `dr-ctl failback --to"
    " SITE`.",
    "A failback stops what runs at the site that comes back; a singleton that runs at both sites refuses it.",
)
WORKLOAD_SHUTS_GATE: Final = FindingKind(
    "DR-WORK-008",
    Severity.ERROR,
    "The gate is shut because a workload runs at the site that was left, or may.",
    "Stop it there by hand; by single steps, `dr-ctl quiesce SITE` stops it while its site serves.",
    "The effect of the workload's own stop command; `quiesce` also pauses the queues.",
    undo="`dr-ctl unfence SITE` lifts the pauses and starts it again.",
)
