"""How a run ended: every code held against what was seen after it. All runs here are from London to Paris."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from dr_ctl.core.model import ExitCode, Role
from dr_ctl.engine import ending
from dr_ctl.engine.ending import End, Facts, unserved_units
from dr_ctl.engine.plan import Spec
from dr_ctl.engine.ports import UnitSnapshot

SERVING, STANDBY, DOWN, UNKNOWN = Role.SERVING, Role.STANDBY, Role.DOWN, Role.UNKNOWN
OK, REVERTED, STRANDED, INCOMPLETE = ExitCode.OK, ExitCode.REVERTED, ExitCode.STRANDED, ExitCode.INCOMPLETE
NOT_KNOWN = ExitCode.UNKNOWN
CLOSED = (STANDBY, DOWN)
# Where each operation has done what it was for, by the roles of London and Paris.
BELIEVED: dict[str, Callable[[Role, Role], bool]] = {
    **dict.fromkeys(("swapover", "failback", "activate"), lambda london, paris: london in CLOSED and paris is SERVING),
    "failover": lambda london, paris: london is not SERVING and paris is SERVING,
    "reinstate": lambda london, paris: london is SERVING and paris in CLOSED,
    **dict.fromkeys(("quiesce", "unfence"), lambda london, paris: london is SERVING and paris is not SERVING),
    "fence": lambda london, paris: london in CLOSED,
    "drain": lambda london, paris: london in CLOSED and paris is not SERVING,
}
# What the steps say where they claim something of the sites; the other codes claim nothing.
CLAIMS = (OK, INCOMPLETE, STRANDED)
MOVED = "moved from london to paris; verified: paris serves; nothing is under way"
# One unit is served there, and one nowhere.
IN_PART = {site: {"units": (UnitSnapshot("a", site), UnitSnapshot("b", None))} for site in ("london", "paris")}


def serving(london: Role, paris: Role) -> list[str]:
    return [site for site, role in (("london", london), ("paris", paris)) if role is SERVING]


def ended(operation: str, london: Role, paris: Role, code: ExitCode = OK, **more: Any) -> End:
    served = serving(london, paris)
    usual: dict[str, Any] = {"undone": None, "changed": True, "outage_s": None, "bounds": None, "cut_off": False}
    usual |= {"units": (UnitSnapshot("orders-1", served[0] if len(served) == 1 else None),), "by_hand": "turn the key"}
    usual["before"] = () if operation == "failover" else ("london",)
    spec = Spec(operation, "paris", max_outage_s=more.pop("limit_s", None))
    facts = Facts(spec, "london", {"london": london, "paris": paris}, **{**usual, **more})
    return ending.judged(facts, code, "it ended")


@pytest.mark.parametrize("changed", [True, False])
@pytest.mark.parametrize("operation", BELIEVED)
def test_an_end_is_only_ever_told_where_it_was_seen(operation: str, changed: bool) -> None:
    lost = operation == "failover"
    for london, paris, code, undone in itertools.product(Role, Role, ExitCode, [None, True, False]):
        if (code is OK and undone is False) or (code is INCOMPLETE and undone is not None):
            continue  # an undo that failed is no success; past the point of no return nothing is undone
        items, served = ended(operation, london, paris, code, undone=undone, changed=changed), serving(london, paris)
        wanted = "london" if operation in ("reinstate", "quiesce", "unfence") else "paris"
        # A site that was taken for lost and serves after all is what a failover wishes for.
        as_before = (served in ([], ["london"]) and paris is STANDBY) if lost else served == ["london"]
        case = (london, paris, code, undone, items)

        if code is OK and undone is None:
            assert items.code is (OK if BELIEVED[operation](london, paris) else NOT_KNOWN), case
        elif undone and changed:
            assert items.undone is as_before, case
            assert not as_before or code is STRANDED or items.code is code, case
        elif code is OK:
            assert items.code is (OK if as_before else NOT_KNOWN), case
        elif undone and not lost and {london, paris} <= {*CLOSED}:  # a takeover has closed the source, say
            assert (items.code, items.undone) == (STRANDED, False), case
        elif code not in CLAIMS:
            assert items == End(code, "it ended", undone), case
        assert items.code is not OK or code is OK, case
        assert items.code is not INCOMPLETE or served in ([wanted], ["paris"]), case
        assert items.code is not STRANDED or (served != ["paris"] and len(served) < 2 and items.findings), case
        if items.code is NOT_KNOWN and code is not NOT_KNOWN:
            assert ": look at " in items.text, case
            assert f"london is {london.value}, paris is {paris.value}" in items.text, case


@pytest.mark.parametrize(
    ("operation", "london", "paris", "more", "text"),
    [
        ("swapover", STANDBY, SERVING, {"outage_s": 0.8412}, f"{MOVED}; clients were out for 0.84 s"),
        ("swapover", STANDBY, SERVING, {"outage_s": 133.0, "limit_s": 120.0},
         f"{MOVED}; clients were out for 133.00 s, longer than the 120 s allowed"),
        ("swapover", STANDBY, SERVING, {"outage_s": 9.0, "limit_s": 2.0, "opened_unseen": True},
         f"{MOVED}; clients were out for at most 9.00 s"),
        ("swapover", STANDBY, SERVING, {}, MOVED),
        ("fence", UNKNOWN, SERVING, {"cut_off": True}, "clients are kept out of london"),
    ],
)  # fmt: skip
def test_a_success_says_what_came_of_it(
    operation: str, london: Role, paris: Role, more: dict[str, Any], text: str
) -> None:
    assert ended(operation, london, paris, **more) == End(OK, text, None)


@pytest.mark.parametrize(
    ("operation", "london", "paris", "code", "more", "words"),
    [
        # The site to look at first is named.
        ("swapover", UNKNOWN, SERVING, OK, {}, ": look at london first"),
        ("swapover", STANDBY, STANDBY, OK, {}, ": look at paris first"),
        ("failback", SERVING, SERVING, INCOMPLETE, {}, ": look at paris first"),
        ("swapover", STANDBY, SERVING, OK, IN_PART["paris"], "serves, but not b"),
        ("swapover", SERVING, STANDBY, REVERTED, {"undone": True}, "it ended: london serves again"),
        ("swapover", STANDBY, STANDBY, REVERTED, {"undone": True, "changed": False}, "is standby, paris is standby"),
        ("failover", UNKNOWN, STANDBY, OK, {"undone": True}, "it ended: no site serves, as before"),
        ("unfence", STANDBY, STANDBY, OK, {"undone": True, "before": ()}, "it ended: no site serves, as before"),
    ],
)
def test_an_end_says_what_is(
    operation: str, london: Role, paris: Role, code: ExitCode, more: dict[str, Any], words: str
) -> None:
    assert ended(operation, london, paris, code, **more).text.endswith(words)


@pytest.mark.parametrize(
    ("operation", "london", "paris", "more", "code", "text", "remedy"),
    [
        ("swapover", SERVING, STANDBY, {}, STRANDED, "london serves, but not everything", "could not be undone"),
        ("swapover", SERVING, STANDBY, IN_PART["london"], NOT_KNOWN, "london serves again, but not b", "opens it"),
        ("swapover", STANDBY, SERVING, {}, INCOMPLETE, "paris was found open, so london was not", "Decide which site"),
        ("swapover", STANDBY, STANDBY, {}, STRANDED, "no site could be shown to serve", "`dr-ctl unfence london`"),
        ("failover", DOWN, STANDBY, {}, STRANDED, "changes of the failover at paris", "the same failover again"),
    ],
)
def test_an_undo_that_failed_says_what_to_do(
    operation: str, london: Role, paris: Role, more: Any, code: ExitCode, text: str, remedy: str
) -> None:
    end = ended(operation, london, paris, STRANDED, undone=False, **more)
    assert (end.code, text in end.findings[0].text, remedy in end.findings[0].remedy) == (code, True, True)


@pytest.mark.parametrize(
    ("code", "undone", "to"), [(OK, None, INCOMPLETE), (REVERTED, True, NOT_KNOWN), (STRANDED, False, STRANDED)]
)
def test_an_end_that_leaves_another_unit_closed_is_not_whole(code: ExitCode, undone: bool | None, to: ExitCode) -> None:
    roles = (STANDBY, SERVING) if code is OK else (SERVING, STANDBY) if undone else (STANDBY, STANDBY)
    end = ended("swapover", *roles, code, undone=undone, unserved={"orders & in": "london"})
    assert (end.code, end.undone) == (to, None if undone is None else False)
    assert end.text.endswith("; served nowhere any more: orders & in of london")
    assert "`dr-ctl unfence london --queues 'orders & in'`" in end.findings[-1].remedy


@pytest.mark.parametrize(
    ("open_at", "closed_at", "is_shut"),
    [
        ((), ("london", "paris"), True),
        ((), ("london",), True),
        ((), ("paris",), False),  # its site does not answer: nothing was seen
        (("paris",), ("london",), False),
        (("london",), ("paris",), False),
    ],
)
def test_a_unit_is_shut_that_was_served_there(
    open_at: tuple[str, ...], closed_at: tuple[str, ...], is_shut: bool
) -> None:
    units = [
        UnitSnapshot("orders.in", None, open_at, closed_at),
        UnitSnapshot("orders.out", None, (), ("london", "paris")),
    ]
    assert unserved_units(units, {"orders.in": "london"}) == ({"orders.in": "london"} if is_shut else {})
