"""The findings that several topologies share."""

from typing import Final

from dr_ctl.core.findings import FindingKind, Weight
from dr_ctl.core.model import Severity

SERVES_BY_FLAGS: Final = FindingKind(
    "DR-ACTIVATE-001",
    Severity.WARNING,
    "The target was shown to serve by its acceptors' flags only, because the settings name no `stomp` address.",
    "Name a client's address under `stomp:` of each broker, with a user that may connect.",
    "A connection at each run, for a moment.",
)
PLUGIN_NOT_STARTED: Final = FindingKind(
    "DR-CONT-001",
    Severity.ERROR,
    "The continuity plugin has not started on a broker.",
    "Look at the broker's log (AMQ229031 is a refused local user); restart that broker.",
    "A restart of a serving broker puts its clients out for its time.",
    undo="No.",
    check="the plugin has started",
    weighs=Weight.FAILOVER | Weight.SINGLE_STEP,
)
PLUGIN_BRIDGE_AWAY: Final = FindingKind(
    "DR-CONT-009",
    Severity.WARNING,
    "A bridge is not connected: the way, the peer's acceptor, or the plugin's remote password.",
    "Look at what stands between the sites and at the log of the broker whose bridge it is.",
    "Nothing; until then what clients do is not copied.",
    check="the bridges are connected",
    weighs=Weight.EXPECTED_WHEN_LOST,
)
DOOR_MISSING: Final = FindingKind(
    "DR-DOOR-001",
    Severity.ERROR,
    "The broker has no acceptor of the name that the settings give.",
    "Name the acceptors under `clients:` and `mirror:` as broker.xml does.",
    check="the acceptors of the settings are there",
    weighs=Weight.FAILOVER | Weight.SINGLE_STEP,
)
DOOR_CLOSED_WHILE_SERVING: Final = FindingKind(
    "DR-DOOR-002",
    Severity.WARNING,
    "The site serves although one of its client acceptors is closed.",
    "Open it in the console, or take it out of `clients:`.",
    "Clients get in through it.",
    undo="By closing it again.",
    check="the clients' doors are all open or all closed",
)
LINK_DOOR_UNKNOWN: Final = FindingKind(
    "DR-DOOR-003",
    Severity.ERROR,
    "dr-ctl cannot tell which acceptor the peer's link uses, or the acceptor that the link needs is not there.",
    "Give the link an acceptor of its own, and name it under `mirror:`.",
    "A restart of the broker for a new acceptor.",
    check="the door of the peer's link is known",
    weighs=Weight.FAILOVER | Weight.SINGLE_STEP,
)
LINK_DOOR_CLOSED: Final = FindingKind(
    "DR-DOOR-004",
    Severity.ERROR,
    "The acceptor of the peer's link is closed.",
    "Where the closed acceptor keeps out what a lost site still holds: `dr-ctl reinstate SITE` once that site is "
    "back, and do not start the acceptor by hand. Otherwise start it in the console.",
    "Messages that the peer still holds come in.",
    undo="No; messages that came in stay.",
    check="the door of the peer's link is open",
)
CLIENTS_BY_OTHER_DOOR: Final = FindingKind(
    "DR-DOOR-005",
    Severity.ERROR,
    "Clients are connected through an acceptor that a fence would not close.",
    "Find out who they are. Move clients to a client acceptor, or name that acceptor under `clients:`. One through "
    "which brokers of the same site come must stay out of `clients:`: a fence would cut these off from each other.",
    "The clients of that acceptor reconnect.",
    check="no client comes by a door that a fence leaves open",
    weighs=Weight.SINGLE_STEP,
)
CLIENTS_BY_LINK_DOOR: Final = FindingKind(
    "DR-DOOR-011",
    Severity.ERROR,
    "Clients are connected through the acceptor of the peer's link, which a fence leaves open.",
    "Let them use a client acceptor, or give the link an acceptor of its own and name the other one under `clients:`.",
    "These clients reconnect; a new acceptor needs a restart of the broker.",
    check="nobody but the peer comes by the door of the link",
    weighs=Weight.SINGLE_STEP,
)
CLIENTS_CANNOT_WORK: Final = FindingKind(
    "DR-LIMIT-001",
    Severity.ERROR,
    "A limit is reached at the broker, or addresses are paused or blocked: behind open doors clients could not send, "
    "or would get nothing. Or the broker has just started and has not measured its disk: whether clients could send is "
    "not known.",
    "Make room as the finding says; `dr-ctl validate` looks again. Where the disk is not measured, run the command "
    "again: a planned move waits up to ten seconds for it. A failover is warned, not refused.",
    check="clients could work at both",
    weighs=Weight.WHERE_IT_SERVES,
)
OTHER_DOOR_OPEN: Final = FindingKind(
    "DR-DOOR-006",
    Severity.WARNING,
    "Another acceptor is open and stays so; nobody uses it now.",
    "Add it to `clients:` if clients may come through it.",
    check="no other door is open",
)
LOCK_COORDINATOR: Final = FindingKind(
    "DR-DOOR-008",
    Severity.ERROR,
    "A lock coordinator may hold a client acceptor: closing it would hand over to the peer without a gate.",
    "Take the lock coordinator off the acceptors in broker.xml.",
    "A restart of the brokers.",
    check="no lock coordinator holds a door",
    weighs=Weight.SINGLE_STEP,
)
PROBE_PORT_UNKNOWN: Final = FindingKind(
    "DR-DOOR-009",
    Severity.WARNING,
    "`stomp:` of the settings names a port that none of the client acceptors has.",
    "Name a client acceptor's port, unless something between translates it. Whether a site is down is shown there.",
    check="probes come by a client's door",
)
GREETED_NOBODY_BEFORE: Final = FindingKind(
    "DR-FENCE-001",
    Severity.WARNING,
    "No client was greeted before the fence, so the fence will be shown by flag only.",
    "Name a client's address under `stomp:` of each broker, with a user that may connect.",
    "A connection at each run, for a moment.",
)
FENCED_BY_FLAG: Final = FindingKind(
    "DR-FENCE-002",
    Severity.WARNING,
    "The fence was shown by flag only.",
    "Name a client's address under `stomp:` of each broker, with a user that may connect.",
    "A connection at each run, for a moment.",
)
LINK_ROLES_UNKNOWN: Final = FindingKind(
    "DR-FENCE-005",
    Severity.WARNING,
    "The roles of the link's user cannot be told, so a lasting fence might keep it out too.",
    "Make sure that the link's user has none of the roles of the lasting fence.",
    check="the roles of the bridges' user are known",
)
LINK_ROLE_KEPT_OUT: Final = FindingKind(
    "DR-FENCE-006",
    Severity.ERROR,
    "The link's user has a role that the lasting fence would keep out.",
    "Give the link a user and a role of its own.",
    "The link reconnects.",
    check="a fence leaves the bridges alone",
)
CANARY_IN_PART: Final = FindingKind(
    "DR-REHEARSE-001",
    Severity.WARNING,
    "A part of the path was not rehearsed.",
    "Do what the finding says; a swapover to and fro, announced to the clients, tries all of it.",
)
REHEARSAL_LEFT: Final = FindingKind(
    "DR-REHEARSE-002",
    Severity.WARNING,
    "A queue of a rehearsal is left at a site. It has a name of dr-ctl's own and holds no message of a client.",
    "`dr-ctl rehearse clean` removes it; where that fails, the console of that broker does.",
    "Nothing: no move looks at it.",
)
FENCE_ENDS_AT_RESTART: Final = FindingKind(
    "DR-FENCE-007",
    Severity.WARNING,
    "The doors are closed, and the roles are not kept out: a restart would end the fence.",
    "Let the user of dr-ctl call addSecuritySettings; type `dr-ctl fence SITE` again.",
    "Nothing; the doors are closed already.",
    undo="`dr-ctl unfence SITE`.",
)
ADDRESSES_LEFT_OUT: Final = FindingKind(
    "DR-FENCE-008",
    Severity.WARNING,
    "Addresses that the matches of the lasting fence leave out.",
    "Name their match under `lasting_fence:` too.",
)
LINK_UNKNOWN: Final = FindingKind(
    "DR-LINK-001",
    Severity.ERROR,
    "dr-ctl cannot tell which of several broker connections is the link to the peer, or the broker has none of the "
    "name that the settings give.",
    "Name it under `link:` of the broker, as broker.xml does.",
    check="the network connector is known",
    weighs=Weight.RESTART,
)
LINK_NEVER_MIRRORED: Final = FindingKind(
    "DR-LINK-002",
    Severity.ERROR,
    "The link has never mirrored anything.",
    "See that its amqp-connection in broker.xml has a mirror element; start the link once.",
    "From then on the link captures what clients do; earlier messages are not captured.",
    check="the link has mirrored",
    weighs=Weight.RESTART,
)
LINK_STOPPED: Final = FindingKind(
    "DR-LINK-003",
    Severity.ERROR,
    "The link is stopped: changes that clients make now are not shipped.",
    "`dr-ctl link restart SITE`.",
    "The link ships the messages that wait. Changes that clients made while it was stopped may not have been captured.",
    undo="By stopping it in the console.",
    check="the link is started",
)
LINK_NOT_ATTACHED: Final = FindingKind(
    "DR-LINK-004",
    Severity.WARNING,
    "The link is started but not attached. While the other site is away that is as it has to be, and the link attaches "
    "once it is back. Where the other site answers, nothing restarts the link but a swapover and `dr-ctl link restart "
    "SITE`.",
    "Where the other site answers: `dr-ctl link restart SITE`; where that does not help, look at what stands between "
    "the sites, and at the peer's acceptor for links.",
    "Nothing; clients stay where they are.",
    undo="No undo is needed, for the link is started as it was.",
    check="its bridges are connected",
    weighs=Weight.EXPECTED_WHEN_LOST,
)
OUTFLOW_PAUSED: Final = FindingKind(
    "DR-LINK-005",
    Severity.ERROR,
    "The outflow of the link is paused, so the link ships nothing.",
    "Resume that queue in the console.",
    "The link ships the messages that wait.",
    undo="By pausing the outflow again; messages that were shipped stay shipped.",
    check="no buffer is paused",
    weighs=Weight.RESTART,
)
LINK_NOT_READ_IN_UNDO: Final = FindingKind(
    "DR-LINK-007",
    Severity.WARNING,
    "While undoing: a broker did not answer whether its link is started.",
    "`dr-ctl status` once it answers; `dr-ctl link restart SITE` where the link is not started.",
    "Nothing; clients stay where they are.",
)
LINK_DID_NOT_ATTACH: Final = FindingKind(
    "DR-LINK-008",
    Severity.ERROR,
    "The link was started and did not attach within the time.",
    "Look at what stands between the sites, at the peer's acceptor for links, and at both brokers' logs.",
    "Nothing; clients stay where they are.",
)
LINK_NOT_CONFIGURED: Final = FindingKind(
    "DR-LINK-009",
    Severity.ERROR,
    "No link to the other site is configured at a broker, so nothing that clients do there reaches the other site. A "
    "move to that site goes on, with a warning; a move away from it, or a return of the other site, is refused.",
    "Configure the link, as at the other site; the page of the topology in docs/ shows the form. It captures what "
    "clients do from its start on; what they did before has to be copied by hand.",
    "Artemis reads a new link at a restart.",
    undo="By taking the link out again.",
    check="a link to the other site is configured",
    weighs=Weight.RESTART,
)
FORGEABLE_DOCUMENTS: Final = FindingKind(
    "DR-LOCK-004",
    Severity.WARNING,
    "Queues have the name of a document of dr-ctl's, and a client can have made them. dr-ctl believes no such "
    "document.",
    "Remove them in the console once it is known who made them; let nobody but management create addresses that match"
    " `dr-ctl.#`.",
    "The messages that lie in these queues are gone.",
    undo="No.",
    check="no document of dr-ctl's is a client's",
)
FENCE_CUTS_NODES: Final = FindingKind(
    "DR-NODE-002",
    Severity.ERROR,
    "Nodes of the broker, or brokers of its site, come in by an acceptor that clients use: a fence would cut them off "
    "from each other. Where nodes replicate, the passive one would become active beside the other one.",
    "Give them an acceptor of their own in broker.xml, and a connector for it that its cluster-connection names.",
    "A restart of the brokers of that site.",
    check="a fence leaves the site's own brokers joined",
    weighs=Weight.FENCING,
)
QUARANTINE_CUTS_NODES: Final = FindingKind(
    "DR-NODE-003",
    Severity.ERROR,
    "A node that replicates comes in by the acceptor of the peer's link, which a failover closes to keep out what the "
    "lost site holds: cut off from each other, both nodes would be active.",
    "Give the nodes an acceptor of their own in broker.xml, and a connector for it that its cluster-connection names.",
    "A restart of the brokers of that site.",
    check="a quarantine leaves the site's own brokers joined",
    weighs=Weight.FAILOVER,
)
NAME_TAKEN: Final = FindingKind(
    "DR-LOCK-005",
    Severity.ERROR,
    "A queue that a client can have made has the very name under which a debt or a receipt is to be written. dr-ctl "
    "changed nothing.",
    "Look at what lies in it and remove it in the console; then the same command. Let nobody but management create "
    "addresses that match `dr-ctl.#`.",
    "The messages that lie in that queue are gone.",
    undo="No.",
)
VERSIONS_DIFFER: Final = FindingKind(
    "DR-PAIR-002",
    Severity.WARNING,
    "The brokers of a pair have different versions.",
    "Rehearse the move with both versions.",
    check="both run the same version",
)
STILL_DIFFERENT: Final = FindingKind(
    "DR-PARITY-003",
    Severity.ERROR,
    "No message is under way, and the sites still differ.",
    "Find out why; `--accept-difference QUEUE=N` moves with exactly that difference.",
    "As many messages are missing at the target, or are there again.",
    undo="By a swapover back.",
)
SAME_COUNT_OTHER_MESSAGES: Final = FindingKind(
    "DR-PARITY-004",
    Severity.ERROR,
    "The counts are equal and the messages are not the same. The finding and `data.evidence` name those that lie at "
    "one site alone.",
    "Look at these messages; where clients worked meanwhile, run the command again. `--accept-difference QUEUE=N` "
    "moves with exactly so many at one site alone.",
    "The messages that lie only at the target are delivered, and those only at the source stay there.",
    undo="By a swapover back; what was delivered stays so.",
)
NO_PROBE: Final = FindingKind(
    "DR-PROBE-001",
    Severity.WARNING,
    "No probe was made, because the settings name no `stomp` address.",
    "Name a client's address under `stomp:` of each broker.",
    "A message through a queue of dr-ctl's own at the end of each run.",
)
PROBE_FAILED: Final = FindingKind(
    "DR-PROBE-003",
    Severity.ERROR,
    "The target was opened, and a message that was sent through it as a client sends it did not come back.",
    "Where `dr-ctl status` names a limit that is reached there, make room; otherwise the log of that broker says why. "
    "Clients that are let in meet the same.",
    undo="By a swapover back.",
)
PROBE_QUEUE_LEFT: Final = FindingKind(
    "DR-PROBE-002",
    Severity.WARNING,
    "The probe's queue could not be removed again.",
    "Remove that queue in the console.",
)
PAUSED_AT_TARGET: Final = FindingKind(
    "DR-QUEUE-002",
    Severity.WARNING,
    "Queues are paused at the target: clients will get nothing from them.",
    "Resume them there in the console if that is not meant; not while a run is open, which has paused them itself.",
    "Their consumers get messages once the target serves.",
    undo="By pausing them again.",
    check="the target would deliver",
)
COUNTED_BELOW_ZERO: Final = FindingKind(
    "DR-QUEUE-003",
    Severity.ERROR,
    "The broker counts below zero for a queue: dr-ctl cannot tell how many messages the queue or its clients hold.",
    "Restart that broker when there is time: a restart begins its counters anew. `dr-ctl validate` looks again.",
    "A restart of the broker interrupts its clients.",
    undo="No.",
    check="the counters of every queue can be told",
)
CLIENTS_HOLD_MESSAGES: Final = FindingKind(
    "DR-QUIESCE-001",
    Severity.ERROR,
    "Clients did not finish what they hold in time; the finding names queue and client.",
    "Stop that client or let it finish, then run again; `--cut-in-flight` moves all the same.",
    "With `--cut-in-flight` what they hold comes again.",
    undo="No; messages that came again stay so.",
)
COME_AGAIN: Final = FindingKind(
    "DR-QUIESCE-002",
    Severity.WARNING,
    "With `--cut-in-flight`, the messages that the finding counts will come again.",
    "Tell the owners of the clients; the clients must recognise messages that they have done.",
)
MOVED_SINCE_DRAIN: Final = FindingKind(
    "DR-RECEIPT-001",
    Severity.ERROR,
    "A counter or a start of a broker is not as the receipt says: something moved since the drain.",
    "`dr-ctl drain --to SITE`, then `dr-ctl activate SITE`.",
    "Clients are out for the time of the drain.",
    undo="`dr-ctl unfence SITE` of the fenced site instead.",
)
NO_RECEIPT: Final = FindingKind(
    "DR-RECEIPT-002",
    Severity.ERROR,
    "No receipt stands there and the outflows were not read as empty: the site is not opened.",
    "`dr-ctl drain --to SITE`; where the other site is lost: `dr-ctl failover --to SITE`.",
    "Clients are out for the time of the drain; a failover loses what was not shipped.",
    undo="A drain changes nothing that is put back; a failover is followed by a failback.",
)
LEFT_OVER: Final = FindingKind(
    "DR-RECONCILE-001",
    Severity.WARNING,
    "After the return, messages are left over at one side.",
    "Compare these queues before moving back.",
)
SET_ASIDE: Final = FindingKind(
    "DR-RECONCILE-002",
    Severity.WARNING,
    "After the return: messages that lay only at the returned site were moved to a queue of dr-ctl's own there.",
    "Look at them; move back by hand what was never done, then remove that queue.",
    "Clients get the messages that are moved back.",
    undo="Messages that were delivered stay delivered.",
)
LIE_ASIDE: Final = FindingKind(
    "DR-RECONCILE-003",
    Severity.WARNING,
    "Messages lie in such a queue, until a person has looked at them.",
    "Move back by hand the messages that were never done, and remove that queue.",
    "Clients get the messages that are moved back.",
    undo="Messages that were delivered stay delivered.",
)
OTHER_SITE_HOLDS_MORE: Final = FindingKind(
    "DR-UNFENCE-001",
    Severity.ERROR,
    "The other site holds messages that this site lacks, so this site is not opened again.",
    "`dr-ctl drain --to SITE`, then `dr-ctl activate SITE`.",
    "Clients are out for the time of the drain.",
    undo="`dr-ctl fence SITE`.",
)
LIES_HERE_ALONE: Final = FindingKind(
    "DR-UNFENCE-003",
    Severity.ERROR,
    "Both sites are closed, and the one that is to be opened again holds messages that the other has not, without any "
    "on their way there: clients of the other may have had them.",
    "`dr-ctl unfence SITE` of the site that served last; else `dr-ctl failover --to SITE`, which says how many may "
    "come as duplicates.",
    "Clients of the site that is opened get them, a second time where those of the other had them.",
    undo="None: what was delivered twice stays so.",
)
RETURN_HOLDS_PAUSES: Final = FindingKind(
    "DR-UNFENCE-002",
    Severity.ERROR,
    "A return holds pauses or a link, and they are not lifted: messages that the return has let in would be delivered"
    " a second time.",
    "`dr-ctl reinstate SITE` of the lost site goes on with the return; if that site is away again, `dr-ctl failover "
    "--to SITE`, to the serving one, shuts it out first.",
    "Delivery at the serving site goes on once the return is over.",
    undo="The return by itself where it fails.",
)
CAME_BACK_OPEN: Final = FindingKind(
    "DR-RETURN-001",
    Severity.WARNING,
    "The returning site came back open; dr-ctl closes it before anything else.",
    "Let its client acceptors boot closed, or set a `lasting_fence:`.",
    "A restart of its brokers.",
)
TRAFFIC_WHILE_OPEN: Final = FindingKind(
    "DR-RETURN-002",
    Severity.WARNING,
    "Messages came and went at the returning site while it was open.",
    "Compare what both sites' clients did meanwhile.",
)
QUARANTINE_ENDED: Final = FindingKind(
    "DR-RETURN-004",
    Severity.WARNING,
    "A restart ended a quarantine: messages that the lost site holds can come in.",
    "Stop that acceptor in the console while the site is away; `dr-ctl reinstate SITE` once it is back.",
    undo="`dr-ctl reinstate SITE` opens it again.",
)
NOT_KEPT_OUT: Final = FindingKind(
    "DR-RETURN-009",
    Severity.WARNING,
    "No acceptor of the site that serves is for links alone, so nothing keeps out what the lost site still holds: once "
    "that site is back, its messages reach clients, and those that were consumed come twice.",
    "Keep the lost site's brokers down, or without their link, until `dr-ctl reinstate SITE`.",
    "A restart of the broker for an acceptor of the link's own.",
)
UNDONE_DUPLICATES: Final = FindingKind(
    "DR-RETURN-007",
    Severity.WARNING,
    "A return was undone half way: the messages that the finding counts came in, and may come twice.",
    "Clients must recognise what they have done. `dr-ctl reinstate SITE` brings the rest.",
    "The return lets in what is left; delivery pauses meanwhile.",
    undo="The return by itself where it fails.",
)
NOT_ALL_APPLIED: Final = FindingKind(
    "DR-SETTLE-001",
    Severity.WARNING,
    "The target could not apply every acknowledgement that had arrived; the messages that the finding counts may come"
    " twice.",
    "Tell the owners of the clients; the clients must recognise messages that they have done.",
)
CONSUMERS_AT_STANDBY: Final = FindingKind(
    "DR-STANDBY-001",
    Severity.ERROR,
    "Consumers are connected at the standby site.",
    "Stop these clients.",
    "Nothing; messages that the consumers hold there would come twice.",
    check="no consumer at a site that waits",
)
PREPARED_TRANSACTIONS: Final = FindingKind(
    "DR-TX-001",
    Severity.ERROR,
    "Prepared transactions: their messages are not at the peer.",
    "Let the transaction manager finish them, or commit or roll them back in the console.",
    "Messages of a transaction that is rolled back were never sent.",
    undo="No.",
    check="no transaction is prepared",
)
MOVES_WHOLE: Final = FindingKind(
    "DR-UNIT-002",
    Severity.ERROR,
    "In this topology all pairs move together; no part of a site moves alone.",
    "Ask for all of it.",
)
