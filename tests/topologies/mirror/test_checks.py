"""The checks of a move: one thing wrong gives exactly its finding, severity and remedy; nothing wrong gives none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dr_ctl.core.errors import LoginRefused, TimedOut, Unreachable
from dr_ctl.core.model import Finding, Role, Severity, some
from dr_ctl.core.patience import Patience
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.lease import LockDocument
from dr_ctl.engine.plan import Ask
from dr_ctl.engine.ports import Move
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.common.debts import document
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Silent
from dr_ctl.topologies.common.view import Config
from dr_ctl.topologies.mirror import procedure
from dr_ctl.topologies.mirror.checks import of_move
from dr_ctl.topologies.mirror.view import Link, MirrorSeen
from tests.topologies.mirror.views import (
    ADMIN,
    CLIENTS,
    MIRROR,
    PAIR,
    at_both,
    broker,
    connection,
    consumer,
    door,
    doors,
    link_connection,
    outflow,
    queue,
    seen,
    with_queue,
)

LONDON, PARIS = at_both("orders.in", "orders.audit", depth=3)
ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


def findings(look: MirrorSeen, **more: Any) -> list[Finding]:
    rules = Rules(more.get("queues", Queues()), Drain(), Patience())
    asked = Ask("swapover", more.get("target", "paris"), accept_difference=more.get("accepted", {}))
    return of_move(rules, look, Move(asked, more.get("source", "london"), {}))


def london(**more: Any) -> MirrorSeen:
    return seen(replace(LONDON, **more), PARIS)


def paris(**more: Any) -> MirrorSeen:
    return seen(LONDON, replace(PARIS, **more))


def other_door(**more: Any) -> Any:
    return (*doors("paris", serving=False), door("admin", ADMIN, site="paris", protocols=frozenset({"CORE"}), **more))


def link(**more: Any) -> tuple[Link, ...]:
    return (replace(PARIS.links[0], **more),)


def test_a_clean_pair_has_no_findings() -> None:
    assert findings(seen(LONDON, PARIS)) == []
    assert findings(seen(LONDON, PARIS), source="paris", target="london") == []


@pytest.mark.parametrize(
    ("look", "id_", "severity", "words", "remedy"),
    [
        (paris(active=False), "DR-SITE-002", ERROR, ["paris/orders-1", "not active"], "promote"),
        (
            paris(queues=tuple(replace(each, delivering=-1) for each in PARIS.queues[:1]) + PARIS.queues[1:]),
            "DR-QUEUE-003",
            ERROR,
            ["counts below zero", "-1 in delivery"],
            "restart",
        ),
        (
            paris(config=Config(("clients", "cleints"), ("mirror",), None)),
            "DR-DOOR-001",
            ERROR,
            ["no acceptor cleints", "has clients, mirror"],
            "clients:",
        ),
        (
            london(
                acceptors=(*LONDON.acceptors, door("mqtt", 1883, started=False)),
                config=Config(("clients", "mqtt"), ("mirror",), None),
            ),
            "DR-DOOR-002",
            WARNING,
            ["serves", "acceptor mqtt is closed"],
            "",
        ),
        (
            paris(acceptors=PARIS.acceptors[:1], config=Config(("clients",), None, None)),
            "DR-DOOR-003",
            ERROR,
            ["none but the clients' speaks AMQP"],
            "mirror:",
        ),
        (
            paris(
                acceptors=(PARIS.acceptors[0], *(door(name, None, started=False) for name in ("north", "south"))),
                config=Config(("clients",), None, None),
            ),
            "DR-DOOR-003",
            ERROR,
            ["north, south could all be it"],
            "mirror:",
        ),
        (
            paris(acceptors=(PARIS.acceptors[0], replace(PARIS.acceptors[1], started=False))),
            "DR-DOOR-004",
            ERROR,
            ["acceptor mirror of the peer's link is closed"],
            "Start it",
        ),
        (
            paris(
                acceptors=(PARIS.acceptors[0], replace(PARIS.acceptors[1], started=False)),
                documents={document(DebtKind.QUARANTINE, "london", "paris"): ""},
            ),
            "DR-DOOR-004",
            Severity.INFO,
            ["acceptor mirror of the peer's link is closed"],
            "do not start it; `dr-ctl reinstate london` does",
        ),
        (
            paris(acceptors=other_door(), connections=(connection(ADMIN),)),
            "DR-DOOR-005",
            ERROR,
            ["would not close", "billing", "admin"],
            "clients:",
        ),
        (london(consumers=(consumer(port=MIRROR),)), "DR-DOOR-011", ERROR, ["orders.in", "mirror"], "clients:"),
        (
            paris(connections=(link_connection("paris"), connection(MIRROR))),
            "DR-DOOR-011",
            ERROR,
            ["STOMP", "billing", "acceptor mirror"],
            "an acceptor of its own",
        ),
        (paris(acceptors=other_door()), "DR-DOOR-006", WARNING, ["acceptor admin is open"], "clients:"),
        (
            paris(acceptors=(replace(PARIS.acceptors[0], opens_at_boot=True), PARIS.acceptors[1])),
            "DR-DOOR-007",
            WARNING,
            ["acceptor clients opens at boot"],
            "autoStart=false",
        ),
        (
            paris(lock_coordinators=("site-lock",)),
            "DR-DOOR-008",
            ERROR,
            ["lock coordinator site-lock"],
            "Take the lock coordinator off",
        ),
        (
            paris(links=()),
            "DR-LINK-009",
            WARNING,
            ["no link from paris to the other site", "not configured"],
            "<mirror/>",
        ),
        (london(links=()), "DR-LINK-009", ERROR, ["no link from london to the other site"], "<mirror/>"),
        (
            paris(links=(*link(), *link(name="other")), queues=tuple(PARIS.business.values())),
            "DR-LINK-001",
            ERROR,
            ["cannot tell the link", "london, other"],
            "link:",
        ),
        (
            paris(queues=tuple(PARIS.business.values())),
            "DR-LINK-002",
            ERROR,
            ["link london has no outflow"],
            "<mirror/>",
        ),
        (
            paris(links=link(started=False, connected=False)),
            "DR-LINK-003",
            ERROR,
            ["link london is not started"],
            "dr-ctl link restart paris",
        ),
        (paris(links=link(connected=False)), "DR-LINK-004", WARNING, ["not attached"], "between the sites"),
        (seen(LONDON, with_queue(PARIS, outflow("paris", consumers=0))), "DR-LINK-004", WARNING, ["not attached"], "l"),
        (
            seen(LONDON, with_queue(PARIS, outflow("paris", paused=True))),
            "DR-LINK-005",
            ERROR,
            ["outflow of link london is paused"],
            "Resume",
        ),
        (
            seen(with_queue(LONDON, queue("$.artemis.internal.sf.x", 2, internal=True)), PARIS),
            "DR-LINK-006",
            WARNING,
            ["$.artemis.internal.sf.x"],
            "",
        ),
        (paris(prepared=("AQID",)), "DR-TX-001", ERROR, ["1 prepared transaction", "AQID"], "roll them back"),
        (
            seen(with_queue(LONDON, queue(depth=3, paused=True)), PARIS),
            "DR-QUEUE-001",
            INFO,
            ["london", "orders.in"],
            "",
        ),
        (paris(version="2.40.0"), "DR-PAIR-002", WARNING, ["2.56.0 at london", "2.40.0 at paris"], ""),
        (paris(now_ms=PARIS.now_ms + 2001), "DR-PAIR-003", WARNING, ["2.0 s"], ""),
        (
            paris(consumers=(consumer(),)),
            "DR-STANDBY-001",
            ERROR,
            ["consumers at the standby", "orders.in", "billing"],
            "Stop these clients",
        ),
        (
            seen(LONDON, with_queue(PARIS, queue(depth=1, site="paris"))),
            "DR-PARITY-001",
            ERROR,
            ["orders.in: 3 at london, 1 at paris"],
            "--accept-difference",
        ),
        (
            seen(with_queue(LONDON, queue("new", 2)), PARIS),
            "DR-PARITY-001",
            ERROR,
            ["new: 2 at london, 0 at paris (absent there)"],
            "--accept-difference",
        ),
        (
            seen(with_queue(LONDON, queue("DLQ", 2)), PARIS),
            "DR-PARITY-002",
            INFO,
            ["need not be equal", "DLQ: 2 at london"],
            "",
        ),
    ],
)
def test_one_thing_wrong_gives_exactly_its_finding(
    look: MirrorSeen, id_: str, severity: Severity, words: list[str], remedy: str
) -> None:
    [found] = findings(look)

    assert (found.id, found.severity) == (id_, severity)
    assert all(word in found.text for word in words), found.text
    assert remedy in found.remedy
    assert found.remedy or severity is not ERROR


@pytest.mark.parametrize(
    ("error", "refuse", "role"),
    [
        (Unreachable("x: connection refused", refused=True), False, Role.UNKNOWN),
        (Unreachable("x: connection refused", refused=True), True, Role.DOWN),
        (TimedOut("x: no answer"), False, Role.SICK),
        (LoginRefused("x: the login was refused"), False, Role.UNKNOWN),
    ],
)
def test_a_silent_broker_is_an_error_with_what_it_said(error: Any, refuse: bool, role: Role) -> None:
    [found] = findings(seen(LONDON, Silent(PAIR, "paris", error, ports_refuse=refuse)))

    assert (found.id, found.severity, found.remedy) == ("DR-SITE-001", ERROR, error.remedy)
    assert found.text == f"paris/orders-1 is {role.value}: {error}"


def test_of_several_pairs_each_is_checked() -> None:
    broken = replace(LONDON, prepared=("xid-1",))
    look = MirrorSeen({"london": {"a": LONDON, "b": broken}, "paris": {"a": PARIS, "b": PARIS}})

    assert [found.id for found in findings(look)] == ["DR-TX-001"]


def test_what_a_run_paused_is_not_left_so() -> None:
    lock = LockDocument(7, "a run", paused={"a run": ("orders.in",)})
    london = with_queue(LONDON, queue(depth=3, paused=True))
    held = replace(london, documents={"dr-ctl.lock.london.7": lock.to_text()})

    assert findings(seen(held, PARIS)) == []


def test_a_pause_at_the_target_is_a_warning_beside_the_note() -> None:
    found = findings(seen(LONDON, with_queue(PARIS, queue(depth=3, site="paris", paused=True))))

    assert [(each.id, each.severity) for each in found] == [("DR-QUEUE-002", WARNING), ("DR-QUEUE-001", INFO)]


@pytest.mark.parametrize(
    "look",
    [
        paris(now_ms=PARIS.now_ms - 2000),
        london(consumers=(consumer(),), connections=(connection(CLIENTS),)),
        paris(consumers=(consumer("activemq.notifications"),)),
        paris(consumers=(consumer("$ACTIVEMQ_ARTEMIS_MIRROR_london", None),)),
        seen(with_queue(LONDON, queue("empty")), PARIS),
        seen(with_queue(LONDON, queue("dr-ctl.probe.london", 1)), PARIS),
        seen(with_queue(LONDON, queue(depth=10)), with_queue(PARIS, outflow("paris", depth=7))),
        replace(seen(with_queue(LONDON, queue(depth=10)), PARIS), moved={PAIR: {"orders.in": 7}}),
    ],
    ids=[
        "clocks just close enough",
        "clients at the serving site",
        "the broker's own consumer",
        "the link's consumer",
        "an empty queue at one site",
        "dr-ctl's own queue",
        "a difference that is under way",
        "a difference that moved between two looks",
    ],
)
def test_what_belongs_there_gives_no_finding(look: MirrorSeen) -> None:
    assert findings(look) == []


@pytest.mark.parametrize(("accepted", "ids"), [({"orders.in": 2}, []), ({"orders.in": 1}, ["DR-PARITY-001"])])
def test_a_difference_is_accepted_at_exactly_its_size(accepted: Mapping[str, int], ids: list[str]) -> None:
    look = seen(LONDON, with_queue(PARIS, queue(depth=1, site="paris")))

    assert [found.id for found in findings(look, accepted=accepted)] == ids


def test_queues_left_out_by_the_settings_are_not_compared() -> None:
    look = seen(with_queue(LONDON, queue("logs", 9)), PARIS)

    assert findings(look, queues=Queues(include=("orders.#",))) == []


def test_with_both_sites_closed_parity_is_left_to_the_gate() -> None:
    closed = broker("london", queue(depth=9), serving=False)

    assert findings(seen(closed, PARIS)) == []


def test_a_target_that_serves_already_is_not_called_a_standby() -> None:
    serving = replace(PARIS, acceptors=doors("paris", serving=True), consumers=(consumer(),))
    closed = replace(LONDON, acceptors=doors("london", serving=False))

    assert findings(seen(closed, serving)) == []


def test_everything_wrong_is_told_at_once_errors_first() -> None:
    bad = replace(PARIS, prepared=("AQID",), version="2.40.0", links=link(started=False), consumers=(consumer(),))

    found = findings(seen(with_queue(LONDON, queue("DLQ", 1)), bad))

    assert [each.severity for each in found] == [ERROR, ERROR, ERROR, WARNING, INFO]
    assert {each.id for each in found} == {
        "DR-TX-001",
        "DR-LINK-003",
        "DR-STANDBY-001",
        "DR-PAIR-002",
        "DR-PARITY-002",
    }


@pytest.mark.parametrize(
    ("count", "told"), [(0, ""), (2, "q0; q1"), (5, "q0; q1; q2; q3; q4"), (7, "q0; q1; q2; q3; q4 and 2 more")]
)
def test_long_lists_are_cut_and_say_so(count: int, told: str) -> None:
    assert some([f"q{number}" for number in range(count)]) == told


def test_a_part_of_a_site_is_refused() -> None:
    part = Move(Ask("swapover", "paris", units=("orders-1",)), "london", {})

    found = procedure.open_.recipe(Queues(), Drain(), Patience()).why_not(seen(LONDON, PARIS), part)

    assert [(each.id, each.severity) for each in found] == [("DR-UNIT-002", Severity.ERROR)]
