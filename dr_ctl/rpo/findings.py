"""The findings of history, estimate, bounds and ledgers."""

from typing import Final

from dr_ctl.core.findings import FindingKind
from dr_ctl.core.model import Severity

QUEUES_OF_BROKERS: Final = FindingKind(
    "DR-LEDGER-001",
    Severity.INFO,
    "An export or a snapshot holds messages in queues that brokers ship or keep for themselves; reconcile counts "
    "these messages as held by nobody.",
    "Nothing: a message that matters to clients lies in their queue too, and what the continuity plugin has staged "
    "counts as held of its queue.",
)
NO_HISTORY: Final = FindingKind(
    "DR-RPO-001",
    Severity.WARNING,
    "The estimate has no history to read.",
    "Let `dr-ctl monitor` run.",
    "The monitor reads the queues of both sites every few seconds.",
)
FILES_LEFT_OUT: Final = FindingKind(
    "DR-RPO-002",
    Severity.WARNING,
    "Files of the history cannot be read and are left out.",
    "Look at the file that the finding names; the figures lack its looks.",
)
NEWEST_LOOK_OLD: Final = FindingKind(
    "DR-RPO-003",
    Severity.WARNING,
    "The newest look of the history is old.",
    "Where both sites answer, see that `dr-ctl monitor` runs; a site that is lost gives no look any more.",
    "Nothing; the bounds grow with this time.",
)
SERVING_SITE_UNKNOWN: Final = FindingKind(
    "DR-RPO-004", Severity.WARNING, "The history does not say which site serves.", "Name the site with `--site`."
)
OUTFLOW_NOT_READ: Final = FindingKind(
    "DR-RPO-005",
    Severity.WARNING,
    "The history holds no look, or no recent one, at that site's outflow.",
    "Let `dr-ctl monitor` run while that site answers.",
    "The monitor reads the queues of both sites every few seconds.",
)
PAIR_NOT_READ: Final = FindingKind(
    "DR-RPO-006",
    Severity.WARNING,
    "A pair was last read long before the newest look.",
    "See that this pair answers; leave out one that is gone with `--since`.",
)
AGE_AT_LEAST: Final = FindingKind(
    "DR-RPO-007",
    Severity.INFO,
    "The age is at least what is shown: something was under way from before the first look.",
    "Begin earlier with `--since`.",
)
ONE_PAIR_ONLY: Final = FindingKind(
    "DR-RPO-010",
    Severity.INFO,
    "The bounds of a pair rest on its own looks, where those of another pair are not known and no sum can be told.",
    "Nothing; a shorter `history.every` makes them narrower next time.",
    "More looks at both sites.",
)
UNBOUNDED_SINCE_LOOK: Final = FindingKind(
    "DR-RPO-011",
    Severity.WARNING,
    "Changes after the last look have no bound: no rate could be told, more came to the other site than the rate "
    "explains, or the look lies in the future.",
    "Let `dr-ctl monitor` run, on a machine whose clock is set.",
)
LEDGER_TORN: Final = FindingKind(
    "DR-RPO-012",
    Severity.WARNING,
    "The last line of a ledger is torn and left out.",
    "Nothing: the writer of the ledger was stopped in its last line.",
)
SENDS_NOT_TOLD: Final = FindingKind(
    "DR-RPO-013",
    Severity.WARNING,
    "No ledger tells of sends to a queue: a message whose send nobody saw cannot be missed.",
    "Add the producers' ledger.",
)
CONSUMPTION_NOT_TOLD: Final = FindingKind(
    "DR-RPO-014",
    Severity.WARNING,
    "No ledger tells of consumption from a queue: the end of messages that left it is unknown.",
    "Add the consumers' ledger.",
)
HOLDINGS_NOT_TOLD: Final = FindingKind(
    "DR-RPO-015",
    Severity.INFO,
    "No ledger says which messages the sites hold: a message that still lies in a queue counts as lost.",
    "Add an export or a browse snapshot of the serving site.",
)
ESTIMATE_UNREADABLE: Final = FindingKind(
    "DR-RPO-017",
    Severity.WARNING,
    "The stored estimate cannot be read.",
    "`dr-ctl rpo estimate` makes it anew.",
    "An estimate contacts no broker.",
)
UNEXPLAINED_SHARE: Final = FindingKind(
    "DR-RPO-019",
    Severity.INFO,
    "A share of what went into a mixed outflow is in no queue's counters: figures of single queues are upper bounds.",
    "Nothing.",
)
LOOK_IN_FUTURE: Final = FindingKind(
    "DR-RPO-020",
    Severity.WARNING,
    "The newest look of the history lies in the future of this machine's clock.",
    "Set the clocks of this machine and of the one that runs `dr-ctl monitor`.",
)
SURVIVOR_NOT_READ: Final = FindingKind(
    "DR-RPO-021",
    Severity.WARNING,
    "The queues of the other site were not read beside those of the lost site: messages whose lost acknowledgements "
    "left them there come twice beside the bound.",
    "Let `dr-ctl monitor` run while both sites answer.",
    "Looks only.",
)
LIES_AT_SURVIVOR: Final = FindingKind(
    "DR-RPO-022",
    Severity.INFO,
    "Messages lie at the other site although the lost one had them no more: the bound on what comes twice holds them.",
    "Nothing now. A planned move removes such copies by their ids.",
)
SITE_DOES_NOT_SERVE: Final = FindingKind(
    "DR-RPO-023",
    Severity.WARNING,
    "The estimate is of a site that does not serve: its outflow holds echoes, for the most part, and its figures are "
    "no alarm.",
    "Ask for the site that serves with `--site`.",
)
LOOKS_WITH_GAPS: Final = FindingKind(
    "DR-RPO-024",
    Severity.WARNING,
    "Looks do not cover all of the time in which the site served: often that in which most was under way.",
    "Let `dr-ctl monitor` run all the time, one of it, near the site. Objectives are met by covered time alone.",
)
CLASS_NOT_READ: Final = FindingKind(
    "DR-RPO-025",
    Severity.WARNING,
    "No queue that was ever read belongs to a class of the objectives, so nothing is known of it.",
    "Check the spelling of the class's patterns, and that `dr-ctl monitor` may read its queues.",
)
INTERVAL_ABOVE_LIMIT: Final = FindingKind(
    "DR-RPO-026",
    Severity.INFO,
    "The 99th percentile keeps a limit, and its interval does not: the history does not settle it.",
    "A longer history tells more: widen `--since`, or let `dr-ctl monitor` run on.",
)
STORE_SILENT: Final = FindingKind(
    "DR-RPO-032",
    Severity.WARNING,
    "The store of the history did not answer in time: the figures rest on what lies on this machine.",
    "See that this machine reaches the store that `history.path` names, with credentials that may read it.",
    "Where the monitor runs on this machine nothing that a failover needs is missing.",
)
NOBODY_LOOKED: Final = FindingKind(
    "DR-RPO-030",
    Severity.WARNING,
    "Nobody looked at the lost site for a time after it was last seen: it may have served then.",
    "Let `dr-ctl monitor` run on. Where somebody knows when the service ended: `--silent-since T --reason TEXT`.",
    "The bounds count the time in which nobody looked.",
)
LOOKS_AHEAD: Final = FindingKind(
    "DR-RPO-031",
    Severity.WARNING,
    "The history holds looks of a time that is not yet: their clock was ahead, and they are left out.",
    "Set the clocks of this machine and of the one that runs `dr-ctl monitor`.",
)
