"""The findings of the use-cases: price, lock, open runs, reports."""

from typing import Final

from dr_ctl.core.findings import FindingKind
from dr_ctl.core.model import Severity

NO_SITE_TO_WORK_FOR: Final = FindingKind(
    "DR-AGENT-004",
    Severity.ERROR,
    "The agent was not started, because not exactly one site serves.",
    "`dr-ctl status` says what each site is; start the agent again once one of them serves.",
    "A look; it changes nothing.",
)
NOBODY_DELETES: Final = FindingKind(
    "DR-AGENT-008",
    Severity.WARNING,
    "No agent deletes at the waiting site the copies of what is consumed: none runs with this STATE, the last one is "
    "gone, or somebody holds it. A failover now brings all of these messages twice.",
    "`dr-ctl sync` on the machine of this STATE, best as a service; where it is held, `dr-ctl sync --go-on` once the "
    "reason is gone.",
    check="the agent deletes what is consumed",
)
AGENT_NOT_LET_IN: Final = FindingKind(
    "DR-AGENT-009",
    Severity.ERROR,
    "A broker refused the agent's login, or that of its console, so the agent ended and tries no more: repeated "
    "attempts lock the account out.",
    "Mend the username and the password of `sync:` or of the site in the settings, then start the agent again.",
    "Until then no copy of what is consumed is deleted.",
)
NOT_PROPOSED: Final = FindingKind(
    "DR-INIT-001",
    Severity.ERROR,
    "`init` wrote no settings, because a broker did not answer, or what joins the brokers was not recognized.",
    "Mend what the finding names. `dr-ctl init --topology ID` writes the example of a topology "
    "without asking a broker.",
    "A look; it changes nothing.",
)
TO_DECIDE: Final = FindingKind(
    "DR-INIT-002",
    Severity.INFO,
    "Some lines of the settings that `init` wrote are for a person to decide: brokers do not tell them.",
    "Edit the lines that say DECIDE; then `dr-ctl validate`.",
)
LINK_DOOR_MAY_BE_CLIENTS: Final = FindingKind(
    "DR-INIT-003",
    Severity.WARNING,
    "`init` took a door for that of the peer's link whose name does not say so. Clients that use it too would not be "
    "kept out by a fence; `validate` tells those that are connected.",
    "Give the link a door of its own, as the finding shows, and put the other one under `clients:`.",
    "A restart of the broker; the link reconnects.",
)
REHEARSED_BADLY: Final = FindingKind(
    "DR-REHEARSE-003",
    Severity.ERROR,
    "A variation of a rehearsal on a twin ended as it must not: more messages were lost or doubled than was said, both "
    "sites were open, or no command helped.",
    "Play that seed again, and report it with its evidence: on simulated brokers that is a defect of dr-ctl.",
    "Nothing: no real broker is touched.",
)
NOT_APPROVED: Final = FindingKind(
    "DR-APPROVAL-001",
    Severity.ERROR,
    "The settings ask for several people before such a run, and it has no saved plan that enough of them have signed.",
    "`dr-ctl plan OPERATION --to SITE --out plan.json`, then each signer `dr-ctl plan approve plan.json`, then the "
    "command with `--plan plan.json`.",
    "The time that it takes; nothing was changed.",
)
APPROVED_ONCE: Final = FindingKind(
    "DR-APPROVAL-002",
    Severity.ERROR,
    "The signed plan was carried out already: people approve one move, not every later one that looks the same.",
    "Make the plan anew with `dr-ctl plan OPERATION --to SITE --out plan.json`, and have it signed.",
    "The time that it takes; nothing was changed.",
)
SIGNATURE_OF_NOBODY: Final = FindingKind(
    "DR-APPROVAL-003",
    Severity.WARNING,
    "A signature beside the plan does not count: its key is not among the signers, or it is of another document.",
    "Remove that file; the signer signs again with `dr-ctl plan approve plan.json`.",
)
NO_SIGNER: Final = FindingKind(
    "DR-APPROVAL-004",
    Severity.ERROR,
    "The settings ask for signatures, and none can be verified here: the file of signers or `ssh-keygen` is missing.",
    "Mend `approvals.signers` in the settings, or install OpenSSH's client.",
    "Until then every run that needs an approval is refused.",
    check="signatures of plans can be verified",
)
AS_IF_LOST: Final = FindingKind(
    "DR-PLAN-002",
    Severity.INFO,
    "The plan is of a failover as if a site was lost that is not: it is for reading, approval and rehearsal, and no "
    "command carries it out.",
    "Nothing. If that site is lost one day, `dr-ctl failover --to SITE` plans from what is so then.",
    "A look; it changes nothing.",
)
SICK_LATELY: Final = FindingKind(
    "DR-ALIVE-004",
    Severity.WARNING,
    "The site to leave is silent, was sick and so alive a few minutes ago, and is taken for down on a person's word.",
    "See that its process was ended, or its host cut off, since then; only then go on.",
    "Where it lives after all, two sites serve.",
    undo="`dr-ctl fence SITE` closes one of them.",
)
REMEMBERED_DEBTS_UNREADABLE: Final = FindingKind(
    "DR-DEBT-001",
    Severity.WARNING,
    "The debts that STATE remembers cannot be read or written; the brokers hold the same debts.",
    "Mend what the finding names, as room on the disk; move the file away once both sites answer.",
    "Nothing; the debts stand on the brokers.",
)
DEMO_COMMAND_FAILED: Final = FindingKind(
    "DR-DEMO-001",
    Severity.ERROR,
    "A command of the demo did not end as it should.",
    "Look at its output above, and at the run's report in the demo's folder.",
)
DEMO_WITHOUT_ESTIMATE: Final = FindingKind(
    "DR-DEMO-002",
    Severity.INFO,
    "The demo ran on a twin without its estimate: Spark needs Java.",
    "Install Java 17 or later to see it.",
)
NO_CLIENT_GREETED: Final = FindingKind(
    "DR-DOOR-010",
    Severity.WARNING,
    "A site serves by the flags of its doors, but no client is greeted where the settings say that clients connect.",
    "See that `stomp:` is an address of its clients' door, and that the user may connect; `dr-ctl validate` knocks "
    "again.",
    "A look.",
)
LOOKS_NOT_READ: Final = FindingKind(
    "DR-HISTORY-001",
    Severity.INFO,
    "`history` shows what runs did, and no looks: there are none, or pyarrow, which reads them, is not installed.",
    "Let `dr-ctl monitor` run: a takeover that no run made shows in its looks alone.",
    "A look.",
)
NOT_TOLD: Final = FindingKind(
    "DR-HOOK-002",
    Severity.WARNING,
    "A command of the settings' `after:` was not told how a run ended, or failed over it; the run ended as it says.",
    "Tell by hand whoever that command tells; `dr-ctl runs show RUN` shows the run. Mend the command.",
)
JOURNAL_ALTERED: Final = FindingKind(
    "DR-JOURNAL-001",
    Severity.ERROR,
    "A run's journal or result is not as it was written; the finding names the line.",
    "Do not rely on what this run says of itself; ask who could write in the state directory.",
)
LEFT_OUT_OF_BUNDLE: Final = FindingKind(
    "DR-BUNDLE-001",
    Severity.WARNING,
    "Something of the run is not in its bundle: it is not there, cannot be read, or a password stands in it.",
    "Say so to whoever gets the bundle. A file with a password in it: change that password, and keep the file here.",
)
CHANGED_BEFORE_LOCK: Final = FindingKind(
    "DR-LOCK-002",
    Severity.ERROR,
    "The sites changed between the question and the lock; nothing was done.",
    "`dr-ctl status`, then run the command again.",
    "A look.",
)
LOCK_HELD: Final = FindingKind(
    "DR-LOCK-003",
    Severity.ERROR,
    "A run holds the lock; or held it until it ran out, and never ended.",
    "Wait for a run that is under way. Of a run that never ended: on the host that the message names, type `dr-ctl "
    "status`, then `dr-ctl resume` or `dr-ctl abort`.",
    "The run goes on, or is undone, with what its own screen says.",
    undo="As the run that is resumed or aborted.",
)
LOSS_ABOVE_LIMIT: Final = FindingKind(
    "DR-LOSS-001",
    Severity.ERROR,
    "A failover may lose more than the objectives or `--accept-loss` allow, or an unknown number.",
    "Whoever owns that limit decides: bring the lost site back, or `--accept-loss N`. Where somebody knows when its "
    "service ended: `--silent-since T --reason TEXT`.",
    "At most so many messages are lost, unless the lost site comes back with them.",
    undo="No; `dr-ctl failback --to SITE` takes in what the lost site still holds.",
)
DUPLICATES_ABOVE_LIMIT: Final = FindingKind(
    "DR-LOSS-005",
    Severity.ERROR,
    "After a failover more messages may be delivered a second time than the objectives or `--accept-duplicates` allow, "
    "or an unknown number. Where no objective is set, any has to be accepted by name.",
    "Whoever owns that limit decides: bring the lost site back, or `--accept-duplicates N`. Consumers that recognise "
    "what they have done pass over these messages. A limit of your own stands under `objectives.duplicates`.",
    "At most so many messages are delivered a second time.",
    undo="No.",
)
LOSS_AS_SUM: Final = FindingKind(
    "DR-LOSS-002",
    Severity.INFO,
    "How the bound of a failover's loss comes about, as a sum.",
    "Nothing.",
)
CLOCK_BEHIND: Final = FindingKind(
    "DR-LOSS-003",
    Severity.WARNING,
    "The clock of this machine is behind the brokers' clocks, and the bound counts by the later clock.",
    "Set this machine's clock (NTP) when there is time.",
)
SILENT_SINCE_CONTRADICTED: Final = FindingKind(
    "DR-LOSS-004",
    Severity.ERROR,
    "The moment given as `--silent-since` lies before a look at which the lost site was seen to serve.",
    "Give a moment after that look at which its service had certainly ended, in UTC, or leave `--silent-since` out.",
    "A moment that is too late makes the bound higher, and hides no loss.",
)
HISTORY_NOT_WRITTEN: Final = FindingKind(
    "DR-MON-001",
    Severity.WARNING,
    "The history could not be written or tidied for some time; the monitor went on and kept what it saw in memory: of"
    " 200 000 rows and more the oldest looks at queues were dropped first.",
    "Make room where the history lies, or mend the disk; the monitor tries again every ten seconds.",
    "Nothing. The estimate does not cover the time that was dropped.",
)
NO_MONITOR: Final = FindingKind(
    "DR-MON-002",
    Severity.WARNING,
    "No monitor has looked for a while, or ever: what a failover would cost is known less and less, or not at all.",
    "Start `dr-ctl monitor`, on a machine that reaches both sites.",
)
PACKAGE_MISSING: Final = FindingKind(
    "DR-PART-001",
    Severity.WARNING,
    "A Python package that reads the history is not installed on this machine: nobody here knows what the monitor saw.",
    "The command that the finding names installs it; a failover works without it, at a price that nobody knows.",
    "Nothing, but for the package that is installed.",
)
PLAN_OUTDATED: Final = FindingKind(
    "DR-PLAN-001",
    Severity.ERROR,
    "Something that a saved plan was decided from has changed; the finding names each change.",
    "`dr-ctl plan OPERATION --to SITE --out FILE` writes it anew; read it again.",
    "A look.",
)
REPORT_NOT_WRITTEN: Final = FindingKind(
    "DR-REPORT-001",
    Severity.WARNING,
    "The report could not be written; the run ended as it says all the same.",
    "`dr-ctl runs report RUN` tries again.",
)
LOST_SITE_OPEN: Final = FindingKind(
    "DR-RETURN-003",
    Severity.ERROR,
    "A lost site is open again beside the one that took over.",
    "`dr-ctl reinstate SITE` closes it at once, says what it did meanwhile, and takes it in; where that is refused, "
    "`dr-ctl fence SITE` closes it.",
    "Clients that work there are cut off; delivery at the serving site pauses for some seconds.",
    undo="No; messages that were taken in stay in.",
)
FLAGS_LIE: Final = FindingKind(
    "DR-ROLE-013",
    Severity.ERROR,
    "A site's flags say that it is as wanted already, and an attempt to connect says otherwise.",
    "`dr-ctl status`; see whether another process has that broker's client port.",
    "A look.",
)
BOTH_CLOSED: Final = FindingKind(
    "DR-ROLE-015",
    Severity.ERROR,
    "The two sites are up and closed, so no client is served.",
    "With an open run: `dr-ctl resume` or `dr-ctl abort`. Without one: `dr-ctl activate SITE`, of the site that "
    "served last.",
    "Clients get in there.",
    undo="`dr-ctl fence SITE`.",
)
ONE_WAITS_ONE_SILENT: Final = FindingKind(
    "DR-ROLE-016",
    Severity.ERROR,
    "A site waits, the other does not answer: no client was seen to be served.",
    "If the other one is lost: `dr-ctl failover --to SITE --dry-run` says what that costs.",
    "The dry run changes nothing.",
    undo="A failover is followed by a failback.",
)
OPEN_WITHOUT_RIGHTS: Final = FindingKind(
    "DR-ROLE-020",
    Severity.ERROR,
    "The doors of a serving site are open, and its clients' roles are kept out: who connects can neither send nor "
    "consume.",
    "`dr-ctl unfence SITE` gives the roles their rights again; else correct the roles or matches under "
    "`lasting_fence:`.",
    "Clients are served at SITE again.",
    undo="`dr-ctl fence SITE`.",
)
SITE_NOT_READ: Final = FindingKind(
    "DR-ROLE-019",
    Severity.WARNING,
    "A site waits, and nothing is known of the other, for a reason that lies in the settings or on this machine: that "
    "says nothing of its brokers, which may serve.",
    "Mend what the message names; `dr-ctl status` looks again.",
    "A look.",
)
ESTIMATE_TOO_SLOW: Final = FindingKind(
    "DR-RPO-008",
    Severity.WARNING,
    "A run's own estimate took too long and was ended.",
    "`dr-ctl rpo estimate` waits for it.",
    "An estimate contacts no broker.",
)
ESTIMATE_FAILED: Final = FindingKind(
    "DR-RPO-009",
    Severity.WARNING,
    "A run's own estimate failed.",
    "`dr-ctl rpo estimate` says why.",
    "An estimate contacts no broker.",
)
UNEXPECTED_MESSAGES: Final = FindingKind(
    "DR-RPO-016",
    Severity.WARNING,
    "Messages came that no producer's ledger knows.",
    "Look at the file of their ids.",
)
ESTIMATE_OLD: Final = FindingKind(
    "DR-RPO-018",
    Severity.WARNING,
    "The stored estimate is old.",
    "Let `dr-ctl monitor` run, or `dr-ctl rpo estimate`.",
    "An estimate contacts no broker.",
)
NO_ESTIMATE: Final = FindingKind(
    "DR-RPO-040",
    Severity.INFO,
    "A monitor looks, and no estimate is stored: nobody knows what the loss of the serving site usually costs.",
    "`dr-ctl rpo estimate`, or wait until the monitor has made one.",
    "An estimate contacts no broker.",
)
STOPPED_AT_ONCE: Final = FindingKind(
    "DR-RUN-002",
    Severity.ERROR,
    "A run was stopped at once; the finding says which clients may be locked out.",
    "`dr-ctl status` says which site serves; `dr-ctl abort` or `dr-ctl resume` ends the run.",
    "`status` says beside the open run what abort and resume do.",
    undo="An abort not; a resume is a move, and a swapover back undoes it.",
)
RUN_OPEN: Final = FindingKind(
    "DR-RUN-003",
    Severity.WARNING,
    "A run is open, or under way.",
    "A run under way: `dr-ctl runs show --follow`. An open run: `dr-ctl resume` or `dr-ctl abort`; `dr-ctl status` "
    "says which site serves after each, and recommends one. A run that cannot be read: `dr-ctl abort --forget RUN "
    "--reason TEXT` gives it up.",
    "Resume goes on to its end; abort puts back what was before it.",
    undo="A swapover back undoes a move that was resumed.",
)
NO_OPEN_RUN: Final = FindingKind(
    "DR-RUN-004",
    Severity.ERROR,
    "No run is open to go on with or to undo.",
    "`dr-ctl runs list` shows the runs that have ended; `dr-ctl status` says who serves.",
    "A look.",
)
PAST_NO_RETURN: Final = FindingKind(
    "DR-RUN-005",
    Severity.ERROR,
    "The open run may have opened the target, so `resume` can finish it and no command can undo it.",
    "`dr-ctl resume` finishes the move.",
    "The target serves; where it does already, nothing changes for clients.",
    undo="By a swapover back.",
)
NOT_ESCALATABLE: Final = FindingKind(
    "DR-RUN-006",
    Severity.ERROR,
    "The run is no planned move before its point of no return, so it cannot be escalated.",
    "`dr-ctl resume` finishes it; `dr-ctl abort` undoes what can be undone.",
    "As the run that is resumed.",
)
RUN_GIVEN_UP: Final = FindingKind(
    "DR-RUN-007",
    Severity.WARNING,
    "A run was given up: no change of it was undone.",
    "`dr-ctl status` says who serves and what is paused.",
    "A look.",
)
CERTIFICATES_NOT_VERIFIED: Final = FindingKind(
    "DR-TLS-001",
    Severity.WARNING,
    "The certificates of a site's brokers are not verified.",
    "Name the file of their authority as `tls.ca` of that site.",
)
GATE_SHUT_SERVING: Final = FindingKind(
    "DR-VERIFY-001",
    Severity.ERROR,
    "The gate is shut because a site serves: before a move that is as it should be.",
    "Nothing. `dr-ctl swapover --to SITE` closes it, drains, verifies and opens the other one by itself.",
    "Clients are out for the time of the drain.",
    undo="By itself where it fails, and by another one back.",
)
