"""The findings of `sharedstore`."""

from typing import Final

from dr_ctl.core.findings import FindingKind
from dr_ctl.core.model import Severity

LOCK_NOT_READ: Final = FindingKind(
    "DR-STORE-001",
    Severity.ERROR,
    "dr-ctl could not read which broker holds the store that both sites share. It changed nothing.",
    "See that this machine reaches the lock file or the database of `store:`, with a login that may read it; run the "
    "same command again.",
    "A look; it changes nothing.",
    check="who holds the store can be told",
)
LOCK_NAMES_ANOTHER: Final = FindingKind(
    "DR-STORE-002",
    Severity.ERROR,
    "A broker answers as if it held the store, but the lock names the other broker. Where that one serves too, the "
    "first was frozen, or cut off from the store, and gives up as soon as it notices. Where the other one does not "
    "answer, it is just taking the store, or the names in the settings are the wrong way round.",
    "Look again in a moment. Where both serve: keep clients away from the one that the lock does not name, and end its "
    "process. Where it stays the only one that answers, compare `broker:` and `lease_holder:` of both with "
    "activemq.xml.",
    "Ending the process cuts off that broker's clients; they find the other site.",
    check="no other broker holds it than the one that answers",
)
LOCK_NAMES_STRANGER: Final = FindingKind(
    "DR-STORE-014",
    Severity.ERROR,
    "The lock names a broker that the settings do not know, so nobody can tell which of the two holds the store. The "
    "locker of activemq.xml may have a `leaseHolderId`; or another installation uses the same table.",
    "Name it under `lease_holder:` of the broker whose activemq.xml has it as `leaseHolderId`; give the other broker "
    "its own.",
    "A line in the settings; nothing is restarted.",
    check="the lock names a broker of the settings",
)
SERVES_WITHOUT_LOCK: Final = FindingKind(
    "DR-STORE-003",
    Severity.ERROR,
    "A broker lets clients in, and the lock says that nobody holds the store, or that its lease has run out.",
    "Look again in a moment; if it stays so, see that broker's log and compare the clocks of its host and of the "
    "database.",
    "A look; it changes nothing.",
    check="the broker that serves holds it",
)
NOBODY_WAITS: Final = FindingKind(
    "DR-STORE-004",
    Severity.ERROR,
    "The process of a broker that should wait for the store does not run, or a run told it to stop a moment ago and "
    "it was not seen to end.",
    "Start the broker; it waits for the store by itself. A process that was told to stop ends within half a minute; "
    "run the command again after that.",
    "Nothing. A waiting broker serves nobody while another broker holds the lock.",
    undo="Stop it.",
    check="a broker that waits runs",
)
LEASE_TOO_SHORT: Final = FindingKind(
    "DR-STORE-005",
    Severity.ERROR,
    "The lease of the store is renewed too rarely, so that it runs out while its holder lives, and both brokers take "
    "it in turns.",
    "Set `lockKeepAlivePeriod` in activemq.xml below `lockAcquireSleepInterval` at both sites, then "
    "`store.keep_alive` and `store.lease` to the same.",
    "A restart of each broker.",
    check="a lease is renewed before it runs out",
)
LEASE_ENDS_ODDLY: Final = FindingKind(
    "DR-STORE-006",
    Severity.WARNING,
    "The end of a lease lies where no right clock would have put it. With a clock that is ahead the other site waits "
    "too long for a lost one; with one that is behind it takes the store from a broker that lives.",
    "Set the clocks of that host and of the database, or `maxAllowableDiffFromDBTime` of the locker in activemq.xml.",
    "Nothing; brokers write the right time with their next renewal.",
    check="the clocks agree",
)
PROCESS_NOT_KNOWN: Final = FindingKind(
    "DR-STORE-007",
    Severity.WARNING,
    "The ports of a broker refuse: a waiting broker looks so, and a dead one. The settings name no command that says "
    "whether its process lives.",
    "Say under `process:` of that broker which command tells whether its process runs: without that a planned move is "
    "refused, because nobody would take the store that the other site gives up.",
    "A look; it changes nothing.",
    check="whether a waiting broker lives can be seen",
)
NOT_IN_STORE: Final = FindingKind(
    "DR-STORE-008",
    Severity.ERROR,
    "A queue holds messages that are not in the store. Producers sent them as non-persistent, and they end with their"
    " broker.",
    "Let them be consumed, then run the same command again; or accept their loss with `--accept-difference QUEUE=N`. "
    "After a holder was frozen and went on, the new holder was seen to count one or two messages that the store holds "
    "no more: nothing is lost with these.",
    "As many messages are lost with `--accept-difference`.",
    undo="No.",
    check="a store that can be counted has all that its holder shows",
)
TAKEN_WITH_OTHER_COUNT: Final = FindingKind(
    "DR-STORE-009",
    Severity.WARNING,
    "The site that took the store did not begin with as many messages as the other one ended with.",
    "Compare the queues; messages that were sent as non-persistent ended with their broker.",
    "A look; it changes nothing.",
)
GIVER_NOT_WAITING: Final = FindingKind(
    "DR-STORE-010",
    Severity.WARNING,
    "The process of the broker that gave up the store has ended and was not started again, or was not seen to end. "
    "The site that serves has no other one to be lost to.",
    "Start the broker; it waits for the store by itself. Where `process.start` is set, a planned move waits for the "
    "end of the process and starts it.",
    "Nothing. A waiting broker serves nobody while another broker holds the lock.",
    undo="Stop it.",
)
HOLDS_AND_SERVES_NOBODY: Final = FindingKind(
    "DR-STORE-011",
    Severity.ERROR,
    "A site answers, lets nobody in and holds the store: nobody can take it from there, and it has nothing to take.",
    "`dr-ctl drain --to SITE`, then `dr-ctl activate SITE`, makes it give up the store; or `dr-ctl unfence SITE` lets "
    "its clients in again.",
    "Clients are out until it is done.",
)
NOBODY_TAKES: Final = FindingKind(
    "DR-STORE-012",
    Severity.ERROR,
    "No broker of a shared store answers: nobody holds the store, or the broker that has it is starting or has died.",
    "Start one of the two brokers, as the finding spells it: a broker takes the free store by itself and serves. No "
    "command of dr-ctl is needed; `dr-ctl status` says who serves then.",
    "Clients get in at the site whose broker takes the store.",
    undo="`dr-ctl swapover --to SITE`, once both brokers run.",
)
NO_LEASE: Final = FindingKind(
    "DR-STORE-013",
    Severity.ERROR,
    "A broker serves from a shared database, and the row of the lock holds no lease: its locker is the default one, "
    "which keeps a transaction open. Neither the other broker nor dr-ctl can tell who holds the store, or since when.",
    "Set `<lease-database-locker/>` as the locker of the persistence adapter in activemq.xml at both sites, as the page"
    " of the topology shows.",
    "A restart of each broker.",
    check="the row holds a lease",
)
