"""The findings of the agent of such a pair, and of what stands where none works."""

from typing import Final

from dr_ctl.core.findings import FindingKind
from dr_ctl.core.model import Severity

DELETION_REFUSED: Final = FindingKind(
    "DR-AGENT-003",
    Severity.WARNING,
    "The policy of the waiting broker's console refuses deletion, so the agent deletes no copy. Copies are deleted in "
    "no other way: a consumer that takes the backlog and gives it back marks each message as delivered once more, and "
    "clients with a redelivery policy then send it to the dead-letter queue.",
    "In that broker's jolokia-access.xml take `removeMatchingMessages` out of <deny> for its queues and allow it as "
    "the remedy spells it; restart that broker. The agent tries again by itself.",
    "A restart of the waiting broker. Until then copies of what was consumed stay there, and come twice after a "
    "failover.",
    undo="Take the line out again.",
)
NOT_ANNOUNCED: Final = FindingKind(
    "DR-AGENT-006",
    Severity.WARNING,
    "Messages left a queue of the serving site, as its counters say, and the broker announced fewer to the agent: the "
    "policy entry that asks for such advisories lacks for that queue, or the broker threw announcements away. The "
    "agent compares both sites of that queue every few seconds instead.",
    'In activemq.xml of the serving broker: `<policyEntry queue=">" advisoryForConsumed="true"/>` (for the entry that '
    "matches that queue: only the closest one counts), and no small pendingMessageLimitStrategy for topics.",
    "A restart of the serving broker. Until then what is consumed between two comparisons comes twice after a "
    "failover.",
    undo="Take the line out again.",
)
UNPROVEN: Final = FindingKind(
    "DR-AGENT-007",
    Severity.WARNING,
    "Copies lie at the waiting site, and nothing that was seen proves that their messages were consumed: the queue was "
    "too busy to be listed whole, a transaction holds messages that no listing shows, or messages were taken away in "
    "the same seconds in which a client gave others back. They stay, and those that were consumed come twice after a "
    "failover.",
    "Wait where the queue is busy: the agent compares again every few seconds. Where somebody knows that whatever the "
    "serving site no longer holds was consumed: `dr-ctl sync --go-on`.",
    "After `--go-on` the agent deletes the copies of everything that the serving site does not hold.",
    undo="No; a copy that was deleted is gone.",
)
