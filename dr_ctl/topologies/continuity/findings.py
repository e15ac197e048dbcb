"""The findings of `continuity`."""

from typing import Final

from dr_ctl.core.findings import FindingKind
from dr_ctl.core.model import Severity

SEVERAL_QUEUES_ON_ADDRESS: Final = FindingKind(
    "DR-CONT-002",
    Severity.ERROR,
    "Several queues lie on one address: the plugin ships a message once for each.",
    "Give each queue an address of its own, in broker.xml of both sites.",
    "A restart of the brokers.",
    check="each queue has its own address",
)
DEEPER_THAN_ID_CACHE: Final = FindingKind(
    "DR-CONT-003",
    Severity.WARNING,
    "A queue is deeper than the ids that a broker remembers (`id_cache_size` of the settings).",
    "Set id-cache-size in broker.xml above the deepest backlog at both sites, and say it under `id_cache_size:`.",
    "A restart of the brokers; until then what is not remembered comes twice.",
    check="no queue is deeper than the ids that are remembered",
)
SAME_SITE_ID: Final = FindingKind(
    "DR-CONT-004",
    Severity.ERROR,
    "The two sites have the same site-id.",
    "Give each site its own site-id in broker.xml.",
    "A restart of the brokers.",
    check="each site has its own id",
)
FLOWS_DIFFER: Final = FindingKind(
    "DR-CONT-005",
    Severity.ERROR,
    "Flows, suffixes or the command prefix differ between the sites.",
    "Make them equal in broker.xml of both sites.",
    "A restart of the brokers.",
    check="both sites have the same flows",
)
OPEN_BUT_NOT_ACTIVE: Final = FindingKind(
    "DR-CONT-006",
    Severity.ERROR,
    "A client acceptor is open although its site is not active: the plugin does not know it.",
    "Name it under serving-acceptors of the plugin in broker.xml.",
    "A restart of that broker.",
    check="no door is open that the plugin does not know",
)
NOT_DELIVERING: Final = FindingKind(
    "DR-CONT-007",
    Severity.WARNING,
    "A site is activated and does not deliver.",
    "`dr-ctl activate SITE` activates it again; see that its client port is free.",
    "Clients that are connected stay; deliveries begin.",
    undo="`dr-ctl fence SITE` keeps clients out again.",
    check="an active site delivers",
)
PLUGIN_BRIDGE_STOPPED: Final = FindingKind(
    "DR-CONT-008",
    Severity.ERROR,
    "A bridge that ships to the peer is stopped.",
    "Start it in the broker's console.",
    "The bridge ships the messages that waited.",
    undo="By stopping it again.",
    check="no bridge is stopped",
)
COMMANDS_WAITING: Final = FindingKind(
    "DR-CONT-010",
    Severity.WARNING,
    "Commands of the plugin wait for the other site.",
    "Wait until they have arrived; where the other site is lost, nothing.",
    check="no command of the plugin waits",
)
ACKS_NOT_APPLIED: Final = FindingKind(
    "DR-CONT-011",
    Severity.ERROR,
    "Nobody applies the acknowledgements of a flow.",
    "Restart that broker.",
    "A restart of a serving broker puts its clients out for its time.",
    undo="No.",
    check="acknowledgements are applied",
)
CLOCKS_BEYOND_STAGING: Final = FindingKind(
    "DR-CONT-012",
    Severity.WARNING,
    "The clocks differ by more than the staging delay.",
    "Let both hosts take their time from the same source.",
    check="the clocks agree",
)
NO_COPY_AT_TARGET: Final = FindingKind(
    "DR-CONT-013",
    Severity.ERROR,
    "Messages have no copy at the target: moving would lose them; the finding names their ids.",
    "Find out why; `--accept-difference QUEUE=N` moves with exactly that difference.",
    "The messages that the finding counts stay behind at the source, closed to clients.",
    undo="By a swapover back: the messages are still there.",
)
COUNTED_NOT_NAMED: Final = FindingKind(
    "DR-CONT-014",
    Severity.ERROR,
    "Queues that are too deep, or whose messages could not all be named, have a count only, which does not show what "
    "would be lost: refused, or passed where `--accept-difference` named it.",
    "Let some of it be consumed at the site that serves, then the same command again; or the move with "
    "`--accept-difference QUEUE=N`, N being exactly the difference of the counts.",
    "With `--accept-difference`: messages without a copy at the target are lost, and messages that were not removed "
    "there come twice; the counts show neither.",
    undo="With `--accept-difference`: no.",
    check="no queue is too deep to compare by id",
)
STAGING_PAUSED: Final = FindingKind(
    "DR-CONT-015",
    Severity.ERROR,
    "Delivery of what is staged is paused: a return that did not come to its end.",
    "`dr-ctl resume` finishes it, `dr-ctl abort` undoes it; without an open run here: `dr-ctl reinstate SITE`.",
    "Delivery goes on, and what had come twice may be delivered twice.",
    undo="No; messages that were delivered stay delivered.",
    check="what is staged is delivered",
)
COMMANDS_MAY_UNDO: Final = FindingKind(
    "DR-CONT-016",
    Severity.WARNING,
    "The target was opened, and commands of the plugin may undo that.",
    "`dr-ctl status` in a moment; where it was closed again: `dr-ctl activate SITE`.",
    "A look.",
    undo="`dr-ctl fence SITE` keeps clients out again.",
)
STAGED_NOT_DELIVERED: Final = FindingKind(
    "DR-CONT-017",
    Severity.ERROR,
    "Messages are staged at the site that is left and were never delivered there, or its queue refuses them. Their "
    "copies at the target are not removed, and the move is refused.",
    "Where the site that is left is closed, type `dr-ctl activate SITE` and let it deliver; mend what keeps its queue"
    " from taking messages (address full, disk full). Then type the same command again while clients send to that "
    "queue: messages that the queue refuses again were there before, and keep no run waiting.",
    "Clients are let in there again, and get those messages.",
    undo="The activation by another move.",
)
STAGED_NOT_TAKEN: Final = FindingKind(
    "DR-CONT-018",
    Severity.WARNING,
    "The site serves, and messages that are staged there are not taken by their queues: no client gets them.",
    "Mend what keeps the queues from taking messages (address full, disk full); then stop and start their bridges "
    "QUEUE.in.mirror.bridge in that site's console, which try again only when they start.",
    "A queue may deliver a message once more that it had before and does not remember.",
    undo="No; messages that were delivered stay delivered.",
)
COPIES_NOT_COVERED: Final = FindingKind(
    "DR-CONT-019",
    Severity.ERROR,
    "Copies lie at the target that the site to be left lacks, and its clients have not acknowledged as many since its "
    "broker's start: consumed before that start, or the last copies of messages that were lost with its store. The "
    "move is refused; a return delivers them.",
    "`--accept-difference QUEUE=N` moves with exactly so many copies, and clients of the target get them.",
    "As many messages at most come twice.",
    undo="No; messages that were delivered stay delivered.",
)
BROUGHT_BACK: Final = FindingKind(
    "DR-RETURN-005",
    Severity.WARNING,
    "The returned site still holds messages for the other site; the finding says how many of them come twice at most.",
    "Tell the owners of the clients; the clients must recognise messages that they have done.",
)
