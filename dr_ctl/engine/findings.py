"""The findings of plans and runs."""

from typing import Final

from dr_ctl.core.findings import FindingKind
from dr_ctl.core.model import Severity

SOURCE_ALIVE: Final = FindingKind(
    "DR-ALIVE-001",
    Severity.ERROR,
    "A failover is refused: the site to leave serves, is sick or frozen, or refuses dr-ctl's login; beside it a second "
    "site would be open.",
    "Where it refuses the login: mend the password. Where it serves and the link is attached: `dr-ctl swapover --to "
    "SITE`. Where the link is cut: let the network be mended, the site serves meanwhile. Where it is sick: end its "
    "process for certain, or cut its host off, then run the failover again.",
    "A swapover keeps clients out for the time of the drain. `--presume-down` does not help here, the site gives "
    "signs of life.",
    undo="A swapover is undone by itself where it fails, and by another one back.",
)
NODES_NOT_NAMED: Final = FindingKind(
    "DR-NODE-001",
    Severity.ERROR,
    "A broker has other nodes than the one that the settings name: any of them may be the broker, or take over at any "
    "moment.",
    "dr-ctl looks at one node of a broker. Name the active one under `jolokia:` and `stomp:` to see whether its site "
    "serves. A planned move is refused while the broker has other nodes; a failover asks for a person's word, once "
    "every node of that site is ended.",
    "A takeover inside the site opens what a fence has closed there.",
    check="the settings name every node of the broker",
)
SOURCE_SILENT: Final = FindingKind(
    "DR-ALIVE-002",
    Severity.ERROR,
    "A failover is refused: the site to leave does not answer, and nothing shows that it is down.",
    "Make sure that this site serves nobody: power it off, or cut its network. Then add `--presume-down SITE --reason"
    " TEXT`.",
    "If it lives after all, clients work at both sites and what they do there differs.",
    undo="The failover not; `dr-ctl failback --to SITE` returns once that site is back.",
)
PRESUMED_BUT_ALIVE: Final = FindingKind(
    "DR-ALIVE-003",
    Severity.WARNING,
    "`--presume-down` was given for a site that is sick, serves or refuses a login: dr-ctl does not believe it, the "
    "site gives signs of life.",
    "End its process for certain, or cut its host off; with ports that refuse, the failover needs no `--presume-down`.",
    "The end of the process ends its service; messages that the site had not shipped wait there.",
    undo="The end of a process not.",
)
RUNBOOK_UNREADABLE: Final = FindingKind(
    "DR-BOOK-001",
    Severity.ERROR,
    "A runbook is not readable: the YAML is wrong, a verb is unknown, or a value is wrong.",
    "Mend the line that is named; `dr-ctl runbook lint` checks it again.",
)
VERB_TWICE: Final = FindingKind(
    "DR-BOOK-002",
    Severity.ERROR,
    "A verb stands twice in a runbook.",
    "Take one of the two out.",
)
UNSAFE_ORDER: Final = FindingKind(
    "DR-BOOK-003",
    Severity.ERROR,
    "A runbook leaves out or reorders what safety needs.",
    "Put the verb where the finding says; `dr-ctl runbook show OPERATION` shows one in force.",
)
VERB_UNKNOWN_HERE: Final = FindingKind(
    "DR-BOOK-004",
    Severity.ERROR,
    "A runbook has a verb that this version cannot do for this topology.",
    "Take it out, or use the runbook that came with dr-ctl.",
)
CANNOT_BE_FENCED: Final = FindingKind(
    "DR-FENCE-003",
    Severity.ERROR,
    "The site does not answer, and no hook is there to cut it off, so the site cannot be fenced.",
    "Cut its host off by hand, or by a hook named `fence-…` in the settings; `dr-ctl fence SITE` once it answers.",
    "The service at that site ends.",
    undo="By connecting the host again.",
)
HOOK_FAILED_LATE: Final = FindingKind(
    "DR-HOOK-001",
    Severity.WARNING,
    "A hook failed after the point of no return; the run went on.",
    "Do by hand what that command should have done.",
    "The effect of the hook's own command.",
)
LOCK_PER_MACHINE: Final = FindingKind(
    "DR-LOCK-001",
    Severity.WARNING,
    "The user of dr-ctl may not create a lock at that broker, so the lock is per machine there.",
    "Let the user of dr-ctl call createQueue and destroyQueue for `dr-ctl.#`; until then, one person at a time.",
)
QUEUES_PAUSED: Final = FindingKind(
    "DR-QUEUE-001",
    Severity.INFO,
    "Queues are paused; a run leaves them so.",
    "Where a run paused them: `dr-ctl unfence SITE` lifts the pauses of runs. Otherwise leave them, or resume them in"
    " the console.",
    "Their consumers get messages again.",
    undo="By pausing them again; messages that were delivered stay delivered.",
    check="no queue is paused",
)
COUNTS_DIFFER: Final = FindingKind(
    "DR-PARITY-001",
    Severity.ERROR,
    "Counts of a queue differ by more than what is under way can explain.",
    "Find out why; `--accept-difference QUEUE=N` moves with exactly that difference.",
    "As many messages are missing at the target, or are there again.",
    undo="By a swapover back.",
    check="the waiting site lacks nothing but what is to be shipped",
)
BOTH_SERVE: Final = FindingKind(
    "DR-ROLE-001",
    Severity.ERROR,
    "Clients are let in at both sites.",
    "`dr-ctl fence SITE` of the site that should not serve; compare what clients did at both sites.",
    "Clients that work there are cut off, and come to the other site.",
    undo="`dr-ctl unfence SITE`; not before the other one is closed.",
)
OTHER_SITE_SERVES: Final = FindingKind(
    "DR-ROLE-002",
    Severity.ERROR,
    "Another site serves than `--expect-serving` names.",
    "`dr-ctl status`; run the command again with the site that serves, or not at all.",
    "A look.",
)
OTHER_NOT_SHOWN_CLOSED: Final = FindingKind(
    "DR-ROLE-003",
    Severity.ERROR,
    "The target serves already, but it cannot be shown that the other site does not.",
    "Bring the management of the other site back, then run the same command again.",
)
TARGET_CANNOT_TAKE_OVER: Final = FindingKind(
    "DR-ROLE-004",
    Severity.ERROR,
    "The target cannot take over as it is.",
    "Mend the target first; `dr-ctl status` says what it lacks.",
)
NOBODY_SERVES: Final = FindingKind(
    "DR-ROLE-005",
    Severity.ERROR,
    "No site was seen to serve.",
    "`dr-ctl status` says what is open and what to do. Where one waits and the other is lost: `dr-ctl failover --to "
    "SITE --dry-run`.",
    "A look.",
)
BOTH_MUST_ANSWER: Final = FindingKind(
    "DR-ROLE-006",
    Severity.ERROR,
    "The command needs an answer from both sites.",
    "Bring the management of the silent site back; if it is lost: `dr-ctl failover --to SITE`.",
    "A failover loses the messages that were not shipped; the command says how many at most.",
    undo="A failover is followed by a failback.",
)
RUN_OF_OTHER_SITES: Final = FindingKind(
    "DR-ROLE-007",
    Severity.ERROR,
    "The open run belongs to other sites than the settings name.",
    "Go on with it with the settings that it began with.",
)
CANNOT_BE_TAKEN_IN: Final = FindingKind(
    "DR-ROLE-008",
    Severity.ERROR,
    "The site cannot be taken in as both sites stand.",
    "`dr-ctl status`; a site must serve, and the other be up with its clients kept out.",
    "A look.",
)
SILENT_SITE: Final = FindingKind(
    "DR-ROLE-009",
    Severity.ERROR,
    "A site that does not answer cannot be quiesced, nor its link be restarted.",
    "Bring its management back.",
)
SOURCE_NOT_FENCED: Final = FindingKind(
    "DR-ROLE-010",
    Severity.ERROR,
    "A drain was asked for, and the other site is not fenced.",
    "`dr-ctl swapover --to SITE` does all of it; by steps, `dr-ctl fence SITE` of the other one comes first.",
    "Clients are out for the time of the drain; after a fence alone, until a site is opened.",
    undo="A swapover by itself where it fails; a fence by `dr-ctl unfence SITE`.",
)
OTHER_SITE_OPEN: Final = FindingKind(
    "DR-ROLE-011",
    Severity.ERROR,
    "A site was to be opened while the other one is open.",
    "`dr-ctl swapover --to SITE` moves the service.",
    "Clients are out for the time of the drain.",
    undo="By itself where it fails, and by another one back.",
)
DRAIN_TO_SERVING: Final = FindingKind(
    "DR-ROLE-012",
    Severity.ERROR,
    "A drain was asked for towards a site that serves already.",
    "`dr-ctl status` says what is left.",
    "A look.",
)
SERVICE_SPLIT: Final = FindingKind(
    "DR-ROLE-014",
    Severity.ERROR,
    "A part of the pairs, or of the queues, is served at one site, the rest at the other.",
    "Queues that were moved one by one serve as they should: `dr-ctl swapover --to SITE --queues PATTERN` brings some "
    "back. Pairs move together: `dr-ctl fence SITE` of the site to leave, then `dr-ctl swapover --to SITE`, the other.",
    "Clients of what is fenced or moved are out until the swapover is done.",
    undo="`dr-ctl unfence SITE`.",
)
RUN_OF_OTHER_BROKERS: Final = FindingKind(
    "DR-ROLE-017",
    Severity.ERROR,
    "The open run is of other brokers than those of these settings.",
    "Go on with it with the settings that it began with (`--config FILE`). Where that broker was made anew: `dr-ctl "
    "abort --forget RUN --reason TEXT` gives the run up.",
    "Giving up closes the run as unknown; no step of it is undone.",
    undo="No; the sites are as they were left.",
)
OPEN_AGAIN: Final = FindingKind(
    "DR-ROLE-018",
    Severity.WARNING,
    "The site that a run has left lets clients in again beside the site that the run opened. dr-ctl closes it before "
    "anything else.",
    "Compare what its clients did there meanwhile; `dr-ctl resume` goes on once it is closed.",
    "Clients of that site are kept out; messages that they sent there are not at the other site.",
    undo="No; the other site serves.",
)
STRANDED_SITES: Final = FindingKind(
    "DR-RUN-001",
    Severity.ERROR,
    "How the sites stand after a run that could not put everything back, and what to do by hand.",
    "Do what the finding says, at the site that it names; type `dr-ctl status`.",
    "Clients get in at that site.",
    undo="`dr-ctl fence SITE`.",
)
NOT_FINISHED: Final = FindingKind(
    "DR-RUN-008",
    Severity.ERROR,
    "The target serves, and something that should have been done is not.",
    "Mend what the finding names, then type the same command again; `dr-ctl status` names what is left.",
    "The target goes on serving. The command does what is left, and nothing that is done already.",
    undo="By a swapover back.",
)
NO_ANSWER: Final = FindingKind(
    "DR-SITE-001",
    Severity.WARNING,
    "A broker did not answer, and why.",
    "Look at that broker and at the way to it; a refused login names where its password comes from.",
    "Looking again is safe, except after a refused login, which may lock the account out.",
)
PASSIVE_NODE: Final = FindingKind(
    "DR-SITE-002",
    Severity.WARNING,
    "The node that the settings name is passive: another node of that broker is active, or none is.",
    "Name the active node under `jolokia:` and `stomp:` of that broker; `dr-ctl validate` looks again.",
    "Nothing; what a passive node counts is never taken for the broker's.",
)
UNIT_NOT_SERVED: Final = FindingKind(
    "DR-UNIT-003",
    Severity.ERROR,
    "A queue or pair is open to clients at no site, while its sites serve others: its clients are out.",
    "`dr-ctl unfence SITE --queues QUEUE` opens it where it was served last; the command refuses where the other site "
    "holds more.",
    "Clients of that queue or pair are let in at SITE.",
    undo="`dr-ctl fence SITE --queues QUEUE`.",
)
UNIT_NOT_THERE: Final = FindingKind(
    "DR-UNIT-001",
    Severity.ERROR,
    "The queue or pair that should move by itself is not there.",
    "`dr-ctl status` names what there is.",
    "A look.",
)
RUNS_OF_A_NAMESAKE: Final = FindingKind(
    "DR-STATE-001",
    Severity.WARNING,
    "This installation has no runs yet, and there are runs of one of the same name with other addresses: where every "
    "address of the settings has changed, they are this one's. An error where one of these runs is open or something "
    "is owed: no run begins then until a person has said which it is.",
    "Where they are this one's: any command once with `--state-dir DIR`, the folder that the finding names; from then "
    "on dr-ctl finds it by the new addresses. Otherwise a `name:` of its own in the settings.",
    "Nothing; naming the folder of another installation makes its runs this one's.",
    undo="The same with the settings that the folder belonged to.",
)
SITES_RENAMED: Final = FindingKind(
    "DR-STATE-002",
    Severity.ERROR,
    "What is owed stands on the brokers under names of sites that the settings do not have: the sites were renamed "
    "since. Nothing is moved, because a debt that is not recognised would be left standing.",
    "Give the sites their old names back; they can be renamed once `dr-ctl status` shows no debt.",
)
NOT_TAKEN_IN: Final = FindingKind(
    "DR-RETURN-008",
    Severity.ERROR,
    "A site that was lost and is not taken in again is not opened: the other site has served since.",
    "`dr-ctl unfence SITE` of the site that served last, then `dr-ctl reinstate SITE` of the lost one; where that "
    "other site is lost now, `dr-ctl failover --to SITE` for the one that is left.",
    "Clients get in at the site that served last.",
    undo="`dr-ctl fence SITE`.",
)
