"""The findings of `mirror`."""

from typing import Final

from dr_ctl.core.findings import FindingKind
from dr_ctl.core.model import Severity

OPENS_AT_BOOT: Final = FindingKind(
    "DR-DOOR-007",
    Severity.WARNING,
    "A client acceptor opens at boot: a restart lets clients in, whoever serves.",
    "Add autoStart=false to its URL in broker.xml at both sites, or set a `lasting_fence:`.",
    "A restart of the brokers; from then on dr-ctl, or a person, opens the site after each restart.",
    undo="By taking it out again.",
    check="the clients' doors stay closed at boot",
)
ROLES_KEPT_OUT_BESIDE_OPEN_DOORS: Final = FindingKind(
    "DR-FENCE-004",
    Severity.ERROR,
    "The doors are open, and the roles of the lasting fence have no rights: the fence still stands, or names the "
    "wrong roles.",
    "`dr-ctl unfence SITE` lifts a fence that still stands; otherwise correct roles or matches under `lasting_fence:`.",
    "Clients may send and consume there again.",
    undo="`dr-ctl fence SITE` keeps them out again.",
    check="no lasting fence stands beside open doors",
)
MESSAGES_BETWEEN_BROKERS: Final = FindingKind(
    "DR-LINK-006",
    Severity.WARNING,
    "Messages lie in queues between brokers of one site.",
    "Wait until they have arrived.",
    check="nothing is under way inside the site",
)
CLOCKS_DIFFER: Final = FindingKind(
    "DR-PAIR-003",
    Severity.WARNING,
    "The brokers' clocks differ.",
    "Let both hosts take their time from the same source.",
    check="the clocks agree",
)
COUNTS_MAY_DIFFER: Final = FindingKind(
    "DR-PARITY-002",
    Severity.INFO,
    "Counts differ where they need not be equal (dead letters, expired, ring, last-value, non-durable).",
    "Nothing.",
    check="so do those that need not",
)
COMPARED_BY_COUNT: Final = FindingKind(
    "DR-PARITY-005",
    Severity.WARNING,
    "The counts are equal, and the broker does not show where some messages come from: whether they are the same ones "
    "was not seen.",
    "Nothing, while the counts of both sites agree; `dr-ctl status` shows them.",
)
UNDONE_SET_ASIDE: Final = FindingKind(
    "DR-RETURN-006",
    Severity.WARNING,
    "A return was undone half way: messages that came in, and whose acknowledgements had come too, lie in a queue of "
    "their own and are not delivered.",
    "`dr-ctl reinstate SITE` brings the rest. Then compare the messages in that queue, and remove it.",
    "The return lets in what is left; delivery pauses meanwhile.",
    undo="The return by itself where it fails.",
)
