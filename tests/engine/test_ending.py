"""How a run ended: every code held against what was seen after it."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dr_ctl.core.model import ExitCode, Role
from dr_ctl.engine import ending
from dr_ctl.engine.ending import End, Facts, price_text, shut_beside
from dr_ctl.engine.plan import Ask
from dr_ctl.engine.ports import UnitSeen

SERVING, STANDBY, DOWN, SICK, UNKNOWN = Role.SERVING, Role.STANDBY, Role.DOWN, Role.SICK, Role.UNKNOWN
OK, REVERTED, STRANDED, INCOMPLETE = ExitCode.OK, ExitCode.REVERTED, ExitCode.STRANDED, ExitCode.INCOMPLETE
NOT_KNOWN = ExitCode.UNKNOWN
# Of each operation its source and its target, and the site that serves if all goes well.
MOVES = {
    "swapover": ("london", "paris", "paris"),
    "failover": ("london", "paris", "paris"),
    "reinstate": ("paris", "london", "paris"),
    "failback": ("paris", "london", "london"),
}
MOVED = "moved from london to paris; verified: "
FAILED_OVER = "failed over from london to paris; verified: "
NOTHING = "nothing is under way"
BY_HAND = "turn the key of london"
OTHER = {"london": "paris", "paris": "london"}


def ended(operation: str, source: Role, target: Role, code: ExitCode, **more: Any) -> End:
    here, there, _ = MOVES[operation]
    roles = {here: source, there: target}
    usual: dict[str, Any] = {"undone": None, "changed": True, "outage_s": None, "bounds": None, "cut_off": False}
    usual["by_hand"] = BY_HAND
    serving = tuple(site for site, role in roles.items() if role is SERVING)
    usual["units"] = (UnitSeen("orders-1", serving[0] if len(serving) == 1 else None),)
    # A failover begins where nobody is served; unless the lost site is seen to serve again when it is undone.
    usual["before"] = () if operation == "failover" and source is not SERVING else (here,)
    facts = Facts(Ask(operation, there), here, roles, **{**usual, **more})
    return ending.of(facts, code, "it ended")


class TestSuccess:
    @pytest.mark.parametrize("other", Role)
    @pytest.mark.parametrize("wanted", Role)
    @pytest.mark.parametrize("operation", MOVES)
    def test_it_is_believed_where_the_wanted_site_alone_is_seen_to_serve(
        self, operation: str, wanted: Role, other: Role
    ) -> None:
        source, target = (wanted, other) if operation == "reinstate" else (other, wanted)
        told = ended(operation, source, target, OK)
        kept_out = other in (STANDBY, DOWN) or (operation == "failover" and other is not SERVING)
        assert told.code is (OK if wanted is SERVING and kept_out else NOT_KNOWN)
        assert told.code is OK or "every step succeeded, but " in told.text

    @pytest.mark.parametrize(
        ("wanted", "other", "first"),
        [(SERVING, UNKNOWN, "london"), (STANDBY, STANDBY, "paris"), (UNKNOWN, STANDBY, "paris")],
    )
    def test_where_it_is_not_the_site_to_look_at_first_is_named(self, wanted: Role, other: Role, first: str) -> None:
        assert ended("swapover", other, wanted, OK).text.endswith(f": look at {first} first")

    @pytest.mark.parametrize(
        ("operation", "more", "text"),
        [
            ("swapover", {"outage_s": 0.8412}, f"{MOVED}paris serves; {NOTHING}; clients were out for 0.84 s"),
            ("swapover", {}, f"{MOVED}paris serves; {NOTHING}"),
            ("failback", {"outage_s": 2.0}, ("moved from paris to london; verified: london serves; "
             f"{NOTHING}; clients were out for 2.00 s")),
            ("reinstate", {}, "london is taken in; paris serves"),
            ("failover", {}, (f"{FAILED_OVER}paris serves; an unknown number of messages may be lost, "
             "an unknown number of duplicates are possible")),
            ("failover", {"bounds": {"lost": {"at_most": 0}, "duplicates": {"at_most": 12}}},
             f"{FAILED_OVER}paris serves; at most 0 message(s) may be lost, at most 12 duplicate(s) are possible"),
        ],
    )  # fmt: skip
    def test_it_says_what_came_of_it(self, operation: str, more: dict[str, Any], text: str) -> None:
        roles = (SERVING, STANDBY) if operation == "reinstate" else (STANDBY, SERVING)
        assert ended(operation, *roles, OK, **more) == End(OK, text, None)

    def test_what_is_not_known_is_never_zero(self) -> None:
        assert price_text({"lost": {"at_most": None}, "duplicates": {"at_most": 0}}) == (
            "an unknown number of messages may be lost, at most 0 duplicate(s) are possible"
        )


class TestUndone:
    @pytest.mark.parametrize("code", [REVERTED, ExitCode.DRAIN_TIMEOUT, ExitCode.INTERRUPTED, OK])
    @pytest.mark.parametrize(
        ("operation", "source", "target", "words"),
        [
            ("swapover", SERVING, STANDBY, "it ended: london serves again"),
            ("failback", SERVING, STANDBY, "it ended: paris serves again"),
            ("reinstate", SERVING, STANDBY, "it ended: paris serves again"),
            ("failover", DOWN, STANDBY, "it ended: no site serves, as before"),
            ("failover", UNKNOWN, STANDBY, "it ended: no site serves, as before"),
            ("failover", SERVING, STANDBY, "it ended: london serves again"),
        ],
    )
    def test_the_code_stands_where_all_is_seen_as_before(
        self, code: ExitCode, operation: str, source: Role, target: Role, words: str
    ) -> None:
        assert ended(operation, source, target, code, undone=True) == End(code, words, True)

    @pytest.mark.parametrize(
        ("operation", "source", "target", "code"),
        [
            ("swapover", STANDBY, STANDBY, STRANDED),
            ("swapover", UNKNOWN, STANDBY, STRANDED),
            ("swapover", STANDBY, SERVING, INCOMPLETE),
            ("swapover", SERVING, SERVING, NOT_KNOWN),
            ("failback", STANDBY, STANDBY, STRANDED),
            ("reinstate", SERVING, SERVING, NOT_KNOWN),
            ("failover", DOWN, SERVING, INCOMPLETE),
            ("failover", SERVING, SERVING, NOT_KNOWN),
        ],
    )
    def test_it_is_not_believed_where_it_is_not_seen(
        self, operation: str, source: Role, target: Role, code: ExitCode
    ) -> None:
        told = ended(operation, source, target, REVERTED, undone=True)
        assert (told.code, told.undone) == (code, False)
        assert [finding.id for finding in told.findings] == ([] if code is NOT_KNOWN else ["DR-RUN-001"])
        assert "is " + target.value in told.text
        assert code is not NOT_KNOWN or told.text.endswith(f": look at {MOVES[operation][1]} first")

    @pytest.mark.parametrize(
        ("operation", "source", "code"),
        [
            ("swapover", SERVING, OK),
            ("swapover", STANDBY, NOT_KNOWN),
            ("failover", DOWN, OK),
            ("failover", UNKNOWN, OK),
            ("reinstate", SERVING, OK),
            ("failback", STANDBY, NOT_KNOWN),
        ],
    )
    def test_of_an_abort_that_had_nothing_to_undo_too(self, operation: str, source: Role, code: ExitCode) -> None:
        assert ended(operation, source, STANDBY, OK, undone=True, changed=False).code is code

    @pytest.mark.parametrize("code", [ExitCode.PRECHECK_FAILED, ExitCode.LOSS_REFUSED, ExitCode.INTERRUPTED])
    @pytest.mark.parametrize("source", Role)
    def test_what_was_refused_before_the_first_call_claims_nothing_of_the_sites(
        self, code: ExitCode, source: Role
    ) -> None:
        assert ended("failover", source, STANDBY, code, undone=True, changed=False) == End(code, "it ended", True)

    @pytest.mark.parametrize(
        ("operation", "source", "target", "text", "remedy"),
        [
            ("swapover", SERVING, STANDBY, "london serves, but not everything", "could not be undone"),
            ("swapover", STANDBY, SERVING, "paris was found open, so london was not", "Decide which site serves"),
            ("swapover", STANDBY, STANDBY, "no site could be shown to serve", "`dr-ctl unfence london` opens london"),
            ("failover", DOWN, STANDBY, "what the failover had changed at paris", "the same failover again"),
        ],
    )
    def test_an_undo_that_failed_says_what_to_do_by_hand(
        self, operation: str, source: Role, target: Role, text: str, remedy: str
    ) -> None:
        told = ended(operation, source, target, STRANDED, undone=False)
        [finding] = told.findings
        assert text in finding.text
        assert remedy in finding.remedy
        assert told.undone is False


class TestStepsByThemselves:
    """London is the source, Paris the target; what is asked for is nobody's service, or that of one of them."""

    def ended(self, operation: str, before: tuple[str, ...], london: Role, paris: Role, **more: Any) -> End:
        roles = {"london": london, "paris": paris}
        serving = tuple(site for site, role in roles.items() if role is SERVING)
        units = (UnitSeen("orders-1", serving[0] if len(serving) == 1 else None),)
        usual: dict[str, Any] = {"undone": None, "changed": True, "cut_off": False, "outage_s": None, "bounds": None}
        usual |= {"units": units, "by_hand": BY_HAND, **more}
        facts = Facts(ask=Ask(operation, "paris"), source="london", roles=roles, before=before, **usual)
        return ending.of(facts, OK, "it ended")

    @pytest.mark.parametrize(
        ("operation", "london", "paris", "text"),
        [
            ("quiesce", SERVING, STANDBY, "london delivers nothing, and its clients hold nothing"),
            ("quiesce", SERVING, UNKNOWN, "london delivers nothing, and its clients hold nothing"),
            ("fence", STANDBY, SERVING, "clients are kept out of london"),
            ("fence", DOWN, STANDBY, "clients are kept out of london"),
            ("drain", STANDBY, STANDBY, "nothing is under way to paris; `dr-ctl activate paris` is next"),
            ("activate", STANDBY, SERVING, "paris serves; nothing is under way"),
            ("unfence", SERVING, STANDBY, "london serves again"),
            *(
                (operation, *roles, None)
                for operation, roles in (
                    ("quiesce", (STANDBY, STANDBY)), ("quiesce", (SERVING, SERVING)), ("fence", (SERVING, STANDBY)),
                    ("fence", (UNKNOWN, SERVING)), ("drain", (STANDBY, SERVING)), ("drain", (UNKNOWN, STANDBY)),
                    ("activate", (UNKNOWN, SERVING)), ("activate", (STANDBY, STANDBY)),
                    ("unfence", (STANDBY, STANDBY)), ("unfence", (SERVING, SERVING)),
                )
            ),
        ],
    )  # fmt: skip
    def test_each_is_believed_where_it_is_seen_and_only_there(
        self, operation: str, london: Role, paris: Role, text: str | None
    ) -> None:
        told = self.ended(operation, ("london",), london, paris)
        assert told == End(OK, text, None) if text else told.code is NOT_KNOWN

    def test_a_site_that_a_hook_cut_off_need_not_answer(self) -> None:
        assert self.ended("fence", (), UNKNOWN, SERVING, cut_off=True).code is OK

    @pytest.mark.parametrize("before", [(), ("london",)])
    def test_undone_is_what_served_before(self, before: tuple[str, ...]) -> None:
        roles = (SERVING, STANDBY) if before else (STANDBY, STANDBY)
        assert self.ended("unfence", before, *roles, undone=True).undone is True
        assert self.ended("unfence", before, *reversed(roles), undone=True).undone is not bool(before)

    def test_a_pair_that_does_not_serve_leaves_it_incomplete(self) -> None:
        units = (UnitSeen("orders-1", "paris"), UnitSeen("orders-2", None))
        told = self.ended("swapover", ("london",), STANDBY, SERVING, units=units)
        assert (told.code, told.text) == (INCOMPLETE, "paris serves, but not orders-2")


class TestPastTheBorder:
    @pytest.mark.parametrize(
        ("source", "target", "code"),
        [
            (STANDBY, SERVING, INCOMPLETE),
            (UNKNOWN, SERVING, INCOMPLETE),
            (SERVING, SERVING, NOT_KNOWN),
            (SERVING, STANDBY, NOT_KNOWN),
            (STANDBY, STANDBY, STRANDED),
            (STANDBY, UNKNOWN, STRANDED),
            (DOWN, DOWN, STRANDED),
        ],
    )
    @pytest.mark.parametrize("operation", ["swapover", "failover", "failback"])
    def test_incomplete_is_only_told_of_a_target_that_serves(
        self, operation: str, source: Role, target: Role, code: ExitCode
    ) -> None:
        told = ended(operation, source, target, INCOMPLETE)
        assert told.code is code
        assert code is INCOMPLETE or f": look at {MOVES[operation][1]} first" in told.text

    @pytest.mark.parametrize("code", [NOT_KNOWN, ExitCode.DECLINED])
    @pytest.mark.parametrize("roles", [(SERVING, STANDBY), (STANDBY, SERVING), (UNKNOWN, UNKNOWN)])
    def test_what_claims_nothing_is_left_as_it_is(self, code: ExitCode, roles: tuple[Role, Role]) -> None:
        assert ended("failback", *roles, code) == End(code, "it ended", None)


@given(
    operation=st.sampled_from(sorted(MOVES)),
    source=st.sampled_from(Role),
    target=st.sampled_from(Role),
    code=st.sampled_from(ExitCode),
    undone=st.sampled_from([None, True, False]),
    changed=st.booleans(),
)
def test_success_is_only_ever_told_where_it_was_seen(
    operation: str, source: Role, target: Role, code: ExitCode, undone: bool | None, changed: bool
) -> None:
    assume(code is not OK or undone is not False)  # an undo that failed is never a success to begin with
    assume(code is not INCOMPLETE or undone is None)  # past the point of no return nothing is undone

    told = ended(operation, source, target, code, undone=undone, changed=changed)

    here, there, wanted = MOVES[operation]
    roles = {here: source, there: target}
    serving = [site for site, role in roles.items() if role is SERVING]
    if told.code is OK and undone is None:
        assert serving == [wanted]
        assert operation == "failover" or roles[OTHER[wanted]] in (STANDBY, DOWN)
    elif told.code is OK:
        assert code is OK
        assert serving == [here] or (operation == "failover" and not serving)
    if told.code is INCOMPLETE:
        assert serving in ([wanted], [there])
    if told.code is STRANDED:
        assert serving != [there]
        assert len(serving) < len(roles)
        assert told.findings


class TestUnitsThatNobodyAskedFor:
    @pytest.mark.parametrize(
        ("code", "undone", "to"), [(OK, None, INCOMPLETE), (REVERTED, True, INCOMPLETE), (STRANDED, False, STRANDED)]
    )
    def test_an_end_that_leaves_one_closed_is_never_said_to_be_whole(
        self, code: ExitCode, undone: bool | None, to: ExitCode
    ) -> None:
        roles = (STANDBY, SERVING) if code is OK else (SERVING, STANDBY) if undone else (STANDBY, STANDBY)
        told = ended("swapover", *roles, code, undone=undone, before=("london",), shut={"orders & in": "london"})
        assert (told.code, told.undone) == (to, None if undone is None else False)
        assert told.text.endswith("; served nowhere any more: orders & in of london")
        assert "`dr-ctl unfence london --queues 'orders & in'`" in told.findings[-1].remedy

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
    def test_it_is_one_that_was_served_and_is_seen_closed_there(
        self, open_at: tuple[str, ...], closed_at: tuple[str, ...], is_shut: bool
    ) -> None:
        units = [UnitSeen("orders.in", None, open_at, closed_at), UnitSeen("orders.out", None, (), ("london", "paris"))]
        assert shut_beside(units, {"orders.in": "london"}) == ({"orders.in": "london"} if is_shut else {})
