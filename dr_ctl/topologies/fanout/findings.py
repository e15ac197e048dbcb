"""The findings of `fanout`."""

from typing import Final

from dr_ctl.core.findings import FindingKind
from dr_ctl.core.model import Severity

PRODUCERS_DOOR_CLOSED: Final = FindingKind(
    "DR-FAN-001",
    Severity.ERROR,
    "A broker has no connector of that name for producers, or it is closed, so that messages come to one site only.",
    "Name it under `producers:` as activemq.xml does, or start it in the console.",
    check="producers can write to it",
)
ONE_SIDED_SENDS: Final = FindingKind(
    "DR-FAN-002",
    Severity.WARNING,
    "Producers write to one site and not to the other. Messages that only one site has are lost with that site.",
    "See that they reach both; `dr-ctl reinstate SITE` copies what that site lacks.",
    "A look at the producers.",
    check="producers write to both sites",
)
NO_OWN_CONNECTOR: Final = FindingKind(
    "DR-FAN-003",
    Severity.WARNING,
    "The settings name no connector of dr-ctl's own, so a return cannot copy to a site what it lacks.",
    "Name a STOMP connector that no client uses, with its login, under `sync:` of that broker.",
    check="messages can be copied",
)
COPIED_AGAIN_AND_AGAIN: Final = FindingKind(
    "DR-FAN-004",
    Severity.ERROR,
    "A return copied again and again what came to the serving site only; the producers do not write to the other one.",
    "See why producers do not reach the other site, and run the same command again. A message that was copied is not "
    "copied twice.",
    "Nothing; clients are served meanwhile.",
)
CONSUMED_NOT_KNOWN: Final = FindingKind(
    "DR-FAN-005",
    Severity.WARNING,
    "Which messages the consumers of a lost site had done could not be told, so what lies at the other site comes to "
    "its consumers, done or not.",
    "Nothing now. Name the store of processed ids that consumers share under `ids:`, where dr-ctl can read it.",
    "The consumers must recognise what they have done.",
)
ONLY_AT_RETURNED: Final = FindingKind(
    "DR-FAN-006",
    Severity.WARNING,
    "Messages lie at the returned site only, and no client is known to have consumed them. dr-ctl removed no such "
    "message.",
    "Clients get these messages once that site serves; the journal lists them by id. Remove by hand the messages that"
    " must not come.",
    "A look at them.",
)
POSSIBLE_DUPLICATES: Final = FindingKind(
    "DR-FAN-007",
    Severity.ERROR,
    "Messages lie at the waiting site, and nothing proves that clients consumed them at the serving site: no store of "
    "processed ids is named, and since both sites were compared last (by a move, a return or `trim`) a broker was "
    "restarted, or a message came to one site only. dr-ctl leaves these messages where they are, and those that were "
    "consumed come as duplicates.",
    "Name the store of processed ids that consumers share under `ids:`: dr-ctl then removes by id what was consumed. "
    "Or move with `--accept-duplicates N`: at most N messages come as duplicates. `dr-ctl trim SITE` from a timer "
    "compares both sites again and again, and keeps that number small.",
    "As many messages come as duplicates as were consumed; the consumers must recognise what they have done.",
    undo="No.",
    check="what was consumed can be told",
)
NOT_CARRIED: Final = FindingKind(
    "DR-FAN-008",
    Severity.ERROR,
    "A site lacks messages that dr-ctl cannot copy whole: map, object and stream messages, messages without a body, "
    "and properties that are no texts lose their kind over STOMP. No such message was copied, and no site was opened.",
    "Copy these messages by a JMS client with the same id, or let them be consumed where they lie; then run the same "
    "command again.",
    "A look at them; a run lists them by id.",
)
STORE_NOT_READ: Final = FindingKind(
    "DR-FAN-009",
    Severity.ERROR,
    "The store of processed ids that the settings name cannot be read, so nothing tells which messages at the waiting "
    "site were consumed.",
    "Is it there, and may dr-ctl read it? The settings name it under `ids:`.",
    "The consumers of that store.",
    check="the store of ids can be read",
)
