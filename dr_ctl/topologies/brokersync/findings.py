"""The findings of `brokersync`."""

from typing import Final

from dr_ctl.core.findings import FindingKind
from dr_ctl.core.model import Severity

LEFT_UNACKNOWLEDGED: Final = FindingKind(
    "DR-AGENT-001",
    Severity.WARNING,
    "Messages left a queue of the serving site that no client acknowledged: somebody purged, moved or deleted them, "
    "the broker came back without its store, or the queue was made again. The broker's counters cover no consumption "
    "of so many, so `dr-ctl sync` holds and deletes nothing.",
    "Where the serving broker lost its store, the waiting site holds the only copies: stop that broker, and `dr-ctl "
    "failover --to SITE` with the waiting one. Where the messages were taken away by hand and their copies may go "
    "too: `dr-ctl sync --go-on`. Where they may not: bring the messages back to the queue first, or move their copies"
    " aside at the waiting site.",
    "After `--go-on` the agent counts everything that left the serving site meanwhile as consumed; it deletes the "
    "copies of that at the waiting site.",
    undo="No; a copy that was deleted is gone.",
)
BROWSE_ENDED_EARLY: Final = FindingKind(
    "DR-AGENT-002",
    Severity.WARNING,
    "A queue could not be compared whole: a browse ended before the queue did, at maxBrowsePageSize (400 unless set) "
    "or where the broker's memory was full, or clients took messages faster than they came. Messages that the browse "
    "left out may be there, and are not deleted.",
    "Raise maxBrowsePageSize of that queue's policy at the broker that is named above its depth. Where it is high "
    "enough, the agent tries again every few seconds.",
    "A restart of that broker, or a new load of its configuration. Until then copies of what was consumed unheard "
    "stay at the waiting site, and come twice after a failover.",
)
NOT_TAKEN_IN_YET: Final = FindingKind(
    "DR-AGENT-005",
    Severity.INFO,
    "A site was lost and is not taken in again; the agent deletes nothing, since messages that lie at one site alone "
    "are not all copies.",
    "`dr-ctl reinstate SITE` once it is back; the agent goes on by itself.",
)
NOT_COPIED_TO_STANDBY: Final = FindingKind(
    "DR-SYNC-001",
    Severity.ERROR,
    "The serving site copies nothing to the other, or ships none of its copies, so that site could not take over "
    "without loss.",
    "Give each queue a composite queue with a copy queue, and a network connector that includes these, in "
    "activemq.xml of the serving site; or name what is there under `copies:` and `network:`.",
    "A restart of that broker.",
    undo="Take them out again.",
    check="the serving site copies its queues",
)
SOME_NOT_COPIED: Final = FindingKind(
    "DR-SYNC-002",
    Severity.WARNING,
    "The serving site does not copy some of its queues.",
    "Give each of these queues a composite queue and a copy queue; messages that lie in it now stay where they are.",
    "A restart of that broker.",
    check="every queue is copied",
)
NOTHING_COPIED_BACK: Final = FindingKind(
    "DR-SYNC-003",
    Severity.WARNING,
    "The site to move to copies nothing back. Once it serves, a loss of it loses all that it took.",
    "Give it a network connector and copy queues too, as docs/classic-brokersync.md shows, before the move or soon "
    "after it.",
    "A restart of that broker.",
    check="the other site copies back",
)
ONLY_AT_STANDBY: Final = FindingKind(
    "DR-SYNC-004",
    Severity.ERROR,
    "Messages lie at the waiting site and not at the serving one, and nothing shows that they were consumed: somebody"
    " holds the agent, or the counters of this start of the serving broker cover fewer. A move removes no message "
    "without that.",
    "Where the serving site lost its store: stop its broker, and `dr-ctl failover --to SITE`. Where the copies are to"
    " stay: `dr-ctl swapover --to SITE --accept-difference QUEUE=N`. Where somebody knows that they were "
    "consumed: `dr-ctl sync --settle --site SITE --reason TEXT` keeps them aside; `--dry-run` lists them by id.",
    "Messages that stay and were consumed come twice.",
    undo="`dr-ctl sync --settle --put-back --site SITE --reason TEXT`, once that site serves.",
    check="what only the waiting site has was consumed, and nobody holds it",
)
LEFT_AT_NEW_SITE: Final = FindingKind(
    "DR-SYNC-005",
    Severity.WARNING,
    "A move left messages at the new site that lay there alone, as it was told to. Messages among them that were "
    "consumed before come twice.",
    "Nothing; a person accepted them.",
    "As many messages at most come twice.",
    check="nothing is left there that may come twice",
)
NOT_COMPARED: Final = FindingKind(
    "DR-SYNC-006",
    Severity.WARNING,
    "A queue is too deep to be compared by id in the time of a move. Equal numbers at both sites say nothing of which "
    "messages these are; where the numbers differ behind the fence, the move is undone.",
    "Give the move more time with `--timeout`, name the agent's door under `sync:` of both brokers, or let clients "
    "consume first.",
    "As many messages as lie there at most come twice, and as many at most are left at the old site.",
    check="every queue can be compared by id in time",
)
COPIES_UNPROVEN: Final = FindingKind(
    "DR-SYNC-007",
    Severity.WARNING,
    "Copies lie at a site, and nothing proves that their messages were consumed, nor that they were not.",
    "A swapover compares behind its fence, and removes what was consumed. For what is left: `dr-ctl sync --settle`.",
    "As many messages at most come twice.",
)
CANNOT_BE_PUT_BACK: Final = FindingKind(
    "DR-SYNC-008",
    Severity.WARNING,
    "Messages that were kept aside at a waiting site were not put back: messages that lie there alone look consumed, "
    "to a broker that drops duplicates, to the agent, and to the next move.",
    "Move the service to that site; then the same command gives them to its clients.",
    "Until then nobody gets them, and none is lost.",
)
