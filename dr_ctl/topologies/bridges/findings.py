"""The findings of `bridges`."""

from typing import Final

from dr_ctl.core.findings import FindingKind
from dr_ctl.core.model import Severity

NOTHING_COPIED: Final = FindingKind(
    "DR-BRIDGE-001",
    Severity.ERROR,
    "No divert of that broker copies a queue to the other site, so nothing can be moved.",
    "See whether the settings name the right topology; every queue that moves needs a divert, a buffer and a bridge "
    "in broker.xml.",
    "A change of broker.xml; messages that were sent before are not copied.",
    check="its queues are copied",
)
ALL_BRIDGES_GONE: Final = FindingKind(
    "DR-BRIDGE-002",
    Severity.ERROR,
    "All bridges of that broker are gone. A broker stops every one of them as soon as the peer refuses the login of "
    "one, or its right to send. The buffers grow, and keep what the bridges had not taken; what a refused bridge had "
    "in hand, messages or ids, may be lost, and the gate looks for each at the other site.",
    "Find the refused one: the lines beside AMQ224058 in the broker's log name it, and DR-BRIDGE-008 where the peer's"
    " roles show it. Correct it at the peer, then restart the broker, or make each bridge anew with createBridge, "
    "with a login that was tried at the peer.",
    "A restart ends the service of that broker for its time. A bridge that is made with a bad login is kept, and "
    "stops all bridges at every boot.",
    undo="A bridge that was made anew is taken away with destroyBridge while the peer is down.",
    check="its bridges are there",
)
IDS_NOT_SHIPPED: Final = FindingKind(
    "DR-BRIDGE-003",
    Severity.ERROR,
    "No bridge ships the ids of messages that were processed at that broker, so the other site would process all its "
    "copies again.",
    "Give the address of the ids an exclusive divert, a buffer and a bridge in broker.xml.",
    "A change of broker.xml; ids from before it are not shipped.",
    check="the processed ids are shipped",
)
BRIDGE_STOPPED: Final = FindingKind(
    "DR-BRIDGE-004",
    Severity.WARNING,
    "A bridge is stopped, so that its buffer grows.",
    "`dr-ctl link restart SITE` starts it.",
    "Nothing; clients stay where they are.",
    undo="There is nothing to undo.",
    check="its bridges are started",
)
QUEUE_WITHOUT_DIVERT: Final = FindingKind(
    "DR-BRIDGE-005",
    Severity.WARNING,
    "A queue has no divert. Messages that are sent to it stay at its site, whatever moves.",
    "Give it a divert, a buffer and a bridge, or leave it where it is on purpose.",
    "A change of broker.xml; messages that were sent before are not copied.",
    check="no queue is left without a copy",
)
COPY_WITHOUT_WAY: Final = FindingKind(
    "DR-BRIDGE-006",
    Severity.ERROR,
    "A copy of a queue has no way to the other site, because its divert, its buffer or its bridge is missing.",
    "Make what the message names, in the order queue, bridge, divert.",
    "Messages that were sent meanwhile were not copied, or were lost where a divert fed no queue.",
    check="each copy has a buffer and a bridge",
)
NOT_BUFFERED: Final = FindingKind(
    "DR-BRIDGE-019",
    Severity.ERROR,
    "Messages that a divert copied found no queue at its other end, or will find none: the buffer is multicast and the "
    "queue anycast, or the other way round. A client of JMS over AMQP marks each message for one of the two; a divert "
    "strips that mark from messages of other protocols alone.",
    "Give the buffer the routing type of its queue, in broker.xml; the broker reads that again by itself. Without such "
    "a fault, compare the queue at both sites.",
    "What was sent before is not copied: a failover loses what of it still lies there.",
    check="each buffer takes what its divert copies",
)
ORIGIN_NOT_TOLD: Final = FindingKind(
    "DR-BRIDGE-007",
    Severity.ERROR,
    "A shipped message does not say where it comes from, or a divert does not look at that; the other site would send"
    " the message back.",
    "Give the bridge the AddHeadersTransformer with the name of its site, and the divert the filter that the message "
    "shows.",
    "A change of broker.xml.",
    check="each message says where it comes from",
)
ONE_ADDRESS_FORBIDDEN: Final = FindingKind(
    "DR-BRIDGE-008",
    Severity.ERROR,
    "At the peer a role may send to every address but one. The bridge of that one is refused, and one refused bridge "
    "stops all bridges of its broker.",
    "Give that role the right to send at that address of the peer.",
    "Nothing; bridges that were stopped already do not come back by themselves, see DR-BRIDGE-002.",
    check="no bridge is refused by the peer",
)
CLIENTS_ROLES_UNKNOWN: Final = FindingKind(
    "DR-BRIDGE-009",
    Severity.ERROR,
    "The settings do not say which roles are the clients', so that no queue could be closed to them alone.",
    "Name them at each broker: `lasting_fence: {roles: [...]}`.",
    check="the roles of the clients are known",
)
IDS_NOT_TAKEN: Final = FindingKind(
    "DR-BRIDGE-010",
    Severity.ERROR,
    "No processor takes the processed ids that arrive at the waiting site, so that site would process the same "
    "messages again.",
    "Start the processor of the ids there, and see that it stays connected.",
    check="processed ids are applied",
)
NO_QUEUE_THERE: Final = FindingKind(
    "DR-BRIDGE-011",
    Severity.ERROR,
    "Copies that arrive at the other site find no queue, or found none since that broker's start. The bridge counts "
    "them as shipped, and they are lost.",
    "Make the queue there; where messages were lost already, compare both sites before the move.",
    "Messages that came meanwhile are not in the copy.",
    check="each copy finds its queue",
)
COPY_OPEN_TO_CLIENTS: Final = FindingKind(
    "DR-BRIDGE-012",
    Severity.ERROR,
    "A queue at the waiting site is open to clients. As soon as the other site is closed, clients would be served "
    "there before everything has arrived.",
    "`dr-ctl fence SITE --queues QUEUE` closes it at the site that waits.",
    "Clients that are connected to that queue there are cut off.",
    undo="`dr-ctl unfence SITE --queues QUEUE`.",
    check="nobody is let in to a copy",
)
COPY_TAKES_SENDS: Final = FindingKind(
    "DR-BRIDGE-013",
    Severity.WARNING,
    "A copy is paused, and its clients may send to it all the same.",
    "`dr-ctl fence SITE --queues QUEUE` at the site that waits keeps them out.",
    "Clients that are connected to that queue there are cut off.",
    undo="`dr-ctl unfence SITE --queues QUEUE`.",
    check="nobody may send to a copy",
)
COPY_HOLDS_PROCESSED: Final = FindingKind(
    "DR-BRIDGE-014",
    Severity.INFO,
    "A copy holds what was processed at the other site. After a move its clients pass over that, before they come to "
    "anything new.",
    "`dr-ctl trim SITE --dry-run` says what of it can go.",
    "A dry run changes nothing. Without a trim, clients wait after the move for as long as the message says.",
    undo="A trim is not undone.",
    check="how much a copy's clients pass over",
)
FORWARDED_BY_CLIENTS: Final = FindingKind(
    "DR-BRIDGE-015",
    Severity.ERROR,
    "A client sends messages with the header that says where a message comes from, as one does that forwards what it "
    "received with all its headers. No divert takes those; they stay at their site, and a failover or a move leaves "
    "them there.",
    "Have that client drop `ARTEMIS_MESSAGE_ORIGIN` from what it sends (in a Camel route `removeHeader`). Wait until "
    "its messages are worked on before a move.",
    "The client is deployed anew.",
    undo="The client as it was.",
    check="no client writes where a message comes from",
)
NOT_DUE: Final = FindingKind(
    "DR-BRIDGE-020",
    Severity.ERROR,
    "Delayed messages of a queue that is to move lie in its buffer: a bridge ships a message when it is due, and that "
    "is later than a move waits behind its fence while nothing moves (`drain.stall`).",
    "Wait until they are due, or move with `--accept-difference QUEUE=N`.",
    "With it they come to the target when they are due, and are lost there if the source is lost before.",
    undo="A move back before they are due: then nothing of them was shipped.",
    check="delayed messages are shipped soon",
)
IDS_LACKING: Final = FindingKind(
    "DR-BRIDGE-018",
    Severity.ERROR,
    "Copies at the target are of messages that were processed at the source, and the target's id store lacks their "
    "ids: a bridge that was refused loses the ids that it had in hand, and a consumer may have ended before it told "
    "one. These messages would be processed a second time.",
    "Announce these ids once more at the source, or write them into the target's id store; then move. "
    "`--accept-difference QUEUE=N` moves with exactly that many.",
    "Messages that are announced as processed are not processed at the target; be sure that they were.",
)
DONE_AT_RETURNED: Final = FindingKind(
    "DR-RETURN-010",
    Severity.WARNING,
    "Messages lie at the serving site, or are brought by a return, whose ids only the returned site's store holds: "
    "consumers there had worked on them when the site was lost, and their announcements were lost with it. Delivered "
    "at the serving site these messages are processed a second time. Where no store is named, nobody can tell which "
    "messages these are. What the return itself brings refuses it before it starts.",
    "The finding names them, by id: see what their second processing did. `--accept-duplicates N` takes them in. Name "
    "both sites' stores under `ids:` where they are not named.",
    "A look.",
)
TOO_MANY_TO_COMPARE: Final = FindingKind(
    "DR-BRIDGE-016",
    Severity.WARNING,
    "The gate held, and dr-ctl did not look for each message of a queue in its copy, since there are more than 1000 "
    "or the copy holds no number to compare by. The buffer was seen empty.",
    "Compare the queue at both sites where a bridge was refused lately; otherwise do nothing.",
    "A look.",
)
COPIES_STAY: Final = FindingKind(
    "DR-BRIDGE-017",
    Severity.INFO,
    "A trim left copies at the waiting site: their ids are not in the id stores of both sites. Their messages wait at "
    "the serving site, or nobody can say what became of them.",
    "Nothing, where clients still have to work on them. Where the stores hold other ids than `ORIGIN:NUMBER`, name the "
    "property of the producers' ids as `ids.header` of each broker.",
    "A look.",
)
IDS_MISSING: Final = FindingKind(
    "DR-RECONCILE-004",
    Severity.WARNING,
    "At the end of a return the id store of the returned site has ids that the serving site's store lacks, or the two"
    " stores could not be compared. Messages of these ids may be processed a second time.",
    "See that the processor of the ids works at the serving site; compare both stores before the move back.",
    "A look.",
)
