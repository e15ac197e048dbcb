"""The findings of Classic brokers, whatever joins the sites."""

from typing import Final

from dr_ctl.core.findings import FindingKind
from dr_ctl.core.model import Severity

POLICY_REFUSES: Final = FindingKind(
    "DR-POLICY-001",
    Severity.ERROR,
    "The policy of a Classic broker's console (jolokia-access.xml) refuses an operation that a run needs; nothing was"
    " changed.",
    "Allow the operation there as the remedy spells it, restart that broker, and run the same command again. A "
    "policy's denials are its owner's will; dr-ctl uses no other form of the request.",
    "A restart of that broker puts its clients out for its time.",
    undo="Take the line out again.",
    check="the console lets through what a run needs",
)
POLICY_REFUSES_PAUSE: Final = FindingKind(
    "DR-POLICY-002",
    Severity.ERROR,
    "The policy of a Classic broker's console refuses to pause queues, so clients cannot be let finish what they hold.",
    "Allow pause and resume there, or move with `--cut-in-flight`.",
    "With `--cut-in-flight` what clients hold when they are cut comes again.",
    check="the console lets queues be paused",
)
NO_CONSOLE_NAMED: Final = FindingKind(
    "DR-POLICY-003",
    Severity.ERROR,
    "The settings name no console of a Classic broker; its statistics plugin tells figures, and nothing of it can be "
    "opened, closed or paused.",
    "Name its console under `jolokia:`. Where there is none, close and open its ports by hand; `dr-ctl status` and "
    "`monitor` say when all copies are shipped.",
    check="it can be managed",
)
DEAD_LETTERS_GREW: Final = FindingKind(
    "DR-DLQ-001",
    Severity.WARNING,
    "After a move the dead-letter queues of the site that serves now hold more messages than before it was opened. A "
    "client gave messages back more often than its redelivery policy allows; no dead letter is shipped to another "
    "site.",
    "Look at these messages in the console of that site, and move back by hand what was never done.",
    "A look; it changes nothing.",
)
