"""The findings of `brokersync`."""

from __future__ import annotations

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
DELETION_REFUSED: Final = FindingKind(
    "DR-AGENT-003",
    Severity.WARNING,
    "The policy of the waiting broker's console refuses deletion. The agent consumes the copies over STOMP instead, "
    "which reads the whole queue each time.",
    "To have them deleted by id, allow removeMatchingMessages on the queues' beans in that broker's "
    "jolokia-access.xml.",
    "A restart of that broker. Without it copies that stay are marked as redelivered.",
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
    " stay: `dr-ctl swapover --to SITE --accept-difference QUEUE=N`. Only where somebody knows that they were "
    "consumed: `dr-ctl sync --go-on` with the agent running deletes them.",
    "Messages that stay and were consumed come twice.",
    undo="A copy that was deleted is gone.",
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
