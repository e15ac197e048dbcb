"""The findings of `replica`."""

from __future__ import annotations

from typing import Final

from dr_ctl.core.findings import FindingKind
from dr_ctl.core.model import Severity

NEVER_TRIED: Final = FindingKind(
    "DR-REPLICA-001",
    Severity.WARNING,
    "dr-ctl knows the replication plugin from its published names and states only: this topology never ran on the "
    "plugin itself.",
    "Rehearse every operation on a pair of your own, under load, before you rely on it; docs/classic-replica.md says "
    "what was assumed.",
    "A pair of brokers for a day.",
    check="the plugin was tried by dr-ctl's makers",
)
NO_REPLICATION_PLUGIN: Final = FindingKind(
    "DR-REPLICA-002",
    Severity.ERROR,
    "A broker has no replication plugin that tells its part.",
    "See that <replicaPlugin> stands in activemq.xml, and that the console lets the user read its bean.",
    "A restart of that broker, where the plugin is missing.",
    undo="Take it out again.",
    check="the replication plugin tells its part",
)
NO_SOURCE_AND_REPLICA: Final = FindingKind(
    "DR-REPLICA-003",
    Severity.ERROR,
    "The two brokers of a pair are not a source and its replica, so nothing can be handed over.",
    "Of two sources: `dr-ctl reinstate SITE` makes the one that does not serve the replica. Of two replicas a person "
    "says in a console which one is the source.",
    "Messages that only the returned site has are set aside until that site serves again.",
    undo="No; a move back changes the parts again.",
    check="one is the source, the other its replica",
)
CONSOLE_CLOSED: Final = FindingKind(
    "DR-REPLICA-004",
    Severity.ERROR,
    "A broker has closed everything but its connector for replication, its console too. The broker may be a healthy "
    "replica, and can neither be compared nor made the source.",
    'Set controlWebConsoleAccess="false" of <replicaPlugin> at both sites.',
    "A restart of each broker; the restart of the source is an outage.",
    undo="Set it back.",
)
RETURNED_LIE_ASIDE: Final = FindingKind(
    "DR-REPLICA-005",
    Severity.WARNING,
    "Messages that only a returned site had lie in a queue of dr-ctl's own there.",
    "The next `dr-ctl swapover --to SITE` puts them back once that site serves.",
    "Clients get these messages late.",
    undo="No.",
)
REPLICA_BEHIND: Final = FindingKind(
    "DR-REPLICA-006",
    Severity.WARNING,
    "The replica is further behind than `lag:` in the settings allows.",
    "Wait; a move waits too, before it keeps clients out. Where it grows, look at the way between the sites and at "
    "the replica's disk.",
    check="the replica is not far behind",
)
ONLY_AT_SERVING: Final = FindingKind(
    "DR-REPLICA-007",
    Severity.WARNING,
    "After a return the serving site holds messages that its new replica lacks. The replica had consumed them before "
    "it was lost, or came back without its store; nothing tells which, so dr-ctl removed none.",
    "Nothing now: clients get these messages, and consumers must recognise what they have done. Compare the queues "
    "before the next move.",
    "Those that were consumed at the other site come twice.",
    undo="No.",
)
NOT_LISTED_WHOLE: Final = FindingKind(
    "DR-REPLICA-008",
    Severity.ERROR,
    "A return was undone because no listing of a queue showed all its messages for fifteen seconds: a message that is "
    "not shown may be one that only the returned site has.",
    "Raise maxBrowsePageSize of that queue's policy at the broker that is named, or end the client or transaction that "
    "holds messages there; then the same command again.",
    "The policy takes effect with a restart of that broker, or a new load of its configuration.",
    undo="Set the policy back once the return has ended.",
)
