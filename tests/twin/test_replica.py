"""Commands on twins that the replication plugin joins: parts that change hands, do not, or do so late; a replica
without a console; a source that comes back as one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
import yaml

from dr_ctl.engine.outcome import Outcome
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.classic import ids as classic_ids
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.replica.access import Access
from dr_ctl.topologies.replica.calls import ROLE
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.classic.policy import HARDENED
from dr_ctl_lab.twin.classic.replica.broker import ReplicaBroker
from dr_ctl_lab.twin.classic.replica.events import Role
from dr_ctl_lab.twin.faults import Fault, FaultKind, When
from dr_ctl_lab.twin.kinds import REPLICA
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.patience import impatient
from tests.twin.matrix import ACCEPTED, done, lose, nothing, put, serving, take
from tests.twin.subject import until

SWITCH = "setReplicationRole"


@pytest.fixture
def topology() -> str:
    return REPLICA


def broker(twin: PlayedTwin, site: str) -> ReplicaBroker:
    [found] = [each for each in twin.brokers(ReplicaBroker) if each.site == site]
    return found


def parts(twin: PlayedTwin) -> tuple[Role, Role]:
    with twin.still():
        return broker(twin, "london").role, broker(twin, "paris").role


def ids(ended: Ended) -> set[str]:
    return {each["id"] for each in ended.document["findings"]}


def roles(dr_ctl: Command) -> dict[str, str]:
    return {site: told["role"] for site, told in dr_ctl("status").document["data"]["sites"].items()}


def before_the_part_changes(monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]) -> None:
    post = Sender._post

    def posted(sender: Sender, calls: Sequence[Call]) -> Sequence[Outcome]:
        if any(call.thing == ROLE for call in calls):
            do()
        return post(sender, calls)

    monkeypatch.setattr(Sender, "_post", posted)


def without_console(twin: PlayedTwin, site: str) -> None:
    """As the plugin is by default; it shows once the broker is a replica, or starts as one."""
    broker(twin, site).console_on_replica = False
    if broker(twin, site).role is Role.REPLICA:
        twin.kill(site)
        twin.start(site)
        twin.wait_mirrored()


def not_given(twin: PlayedTwin, site: str, monkeypatch: pytest.MonkeyPatch, *, refused: bool) -> None:
    """The call that gives a part is refused by the console, which let it through before, or it is answered only."""
    if refused:
        before_the_part_changes(monkeypatch, lambda: setattr(broker(twin, site), "policy", HARDENED))
    else:
        twin.host(site).faults.add(Fault(FaultKind.IDLE, When(operation=SWITCH, changing=True), times=None))


# a planned move


def test_validate_and_every_move_say_that_it_never_ran_on_the_plugin(dr_ctl: Command) -> None:
    for words in (["validate"], ["plan", "swapover", "--to", "paris"], ["swapover", "--to", "paris", "--yes"]):
        assert "DR-REPLICA-001" in ids(dr_ctl(*words)), words


def test_the_plan_names_the_call_at_the_site_that_is_left(dr_ctl: Command) -> None:
    plan = dr_ctl("plan", "swapover", "--to", "paris").document["data"]["plan"]

    [call] = [call for step in plan["steps"] for call in step["calls"] if call["thing"] == ROLE]
    assert (call["site"], call["goal"]) == ("paris", "open")
    assert "brokerName=london" in call["bean"]
    assert (call["through"], call["arguments"]) == ("london", ["replica", False])


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "without effect"])
def test_a_part_that_is_not_given_away_leaves_everything_as_it_was(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    impatient(monkeypatch, activate_s=0.5)
    nothing(twin, dr_ctl)
    before = twin.dump()
    not_given(twin, "london", monkeypatch, refused=refused)

    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert (ended.code, ended.document["data"]["undone"]) == (20, True), ended.document
    assert serving(twin) == ("london",)
    assert twin.settable() == {name: each["settable"] for name, each in before.items()}


def test_an_order_that_may_still_come_true_is_unknown_and_may_be_done_after_the_run(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, activate_s=0.5)
    nothing(twin, dr_ctl)
    with monkeypatch.context() as patch:
        before_the_part_changes(patch, lambda: twin.cut("london", mode="hang"))
        ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert ended.code == 22, ended.document
    assert "look at paris first" in ended.document["summary"]
    assert serving(twin) == ()
    twin.heal()
    until(lambda: parts(twin) == (Role.REPLICA, Role.SOURCE))
    assert "serves already" in done(dr_ctl("swapover", "--to", "paris", "--yes")).document["summary"]
    assert (serving(twin), twin.depth("paris", "orders.in")) == (("paris",), 2)


def test_an_order_whose_answer_is_lost_is_seen_by_its_effect(twin: PlayedTwin, dr_ctl: Command) -> None:
    nothing(twin, dr_ctl)
    twin.host("london").faults.add(Fault(FaultKind.UNANSWERED, When(operation=SWITCH, changing=True)))

    ended = done(dr_ctl("swapover", "--to", "paris", "--yes"))

    assert ended.document["data"]["pairs"][0]["serving"] == "paris"


def test_a_source_that_nobody_fetches_from_says_so(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.cut("london")
    until(lambda: not broker(twin, "london").attached)

    assert "DR-LINK-004" in ids(dr_ctl("validate", "--for", "swapover", "--to", "paris"))


def test_the_doors_of_a_replica_are_not_opened(twin: PlayedTwin, dr_ctl: Command) -> None:
    done(dr_ctl("fence", "london", "--yes"))

    ended = dr_ctl("unfence", "paris", "--yes")

    assert ended.code in (10, 23), ended.document
    assert "replica" in ended.document["summary"]
    assert serving(twin) == ()
    done(dr_ctl("unfence", "london", "--yes"))
    assert serving(twin) == ("london",)


# a lost site


def test_a_returned_source_is_closed_and_what_only_it_has_is_delivered_when_it_serves(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    lose(twin, dr_ctl)  # one message that Paris lacks, and one acknowledgement
    done(dr_ctl("failover", "--to", "paris", "--yes", *ACCEPTED))
    take(twin, "paris", "orders.in")
    take(twin, "paris", "orders.in")
    put(twin, "paris", "orders.in", 1)
    twin.heal()
    twin.start("london")
    assert parts(twin) == (Role.SOURCE, Role.SOURCE)
    assert set(serving(twin)) == {"london", "paris"}

    taken_in = done(dr_ctl("reinstate", "london", "--yes"))

    assert {"DR-RETURN-001", "DR-RETURN-002"} <= ids(taken_in)
    assert (serving(twin), parts(twin)) == (("paris",), (Role.REPLICA, Role.SOURCE))
    until(lambda: twin.depth("london", "orders.in") == 1)
    assert (twin.depth("london", "orders.out"), twin.depth("london", "dr-ctl.returned.london.orders.out")) == (0, 1)
    assert "DR-REPLICA-005" in ids(dr_ctl("status"))
    done(dr_ctl("swapover", "--to", "london", "--yes"))
    assert (twin.depth("london", "orders.out"), twin.depth("london", "dr-ctl.returned.london.orders.out")) == (1, 0)
    assert "DR-REPLICA-005" not in ids(dr_ctl("status"))


def test_what_only_the_serving_site_has_after_a_return_stays_and_a_person_decides(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    lose(twin, dr_ctl)
    done(dr_ctl("failover", "--to", "paris", "--yes", *ACCEPTED))
    twin.heal()
    twin.start("london")
    assert (twin.depth("london", "orders.in"), twin.depth("paris", "orders.in")) == (1, 2)

    taken_in = done(dr_ctl("reinstate", "london", "--yes"))
    refused = dr_ctl("swapover", "--to", "london", "--yes")

    assert {"DR-REPLICA-007", "DR-RECONCILE-001"} & ids(taken_in) == {"DR-REPLICA-007", "DR-RECONCILE-001"}
    assert twin.depth("paris", "orders.in") == 2
    assert (refused.code, "DR-PARITY-001" in ids(refused), serving(twin)) == (10, True, ("paris",))
    done(dr_ctl("swapover", "--to", "london", "--yes", "--accept-difference", "orders.in=1"))
    assert serving(twin) == ("london",)


@pytest.mark.parametrize("site", ["london", "paris"])
def test_a_return_waits_for_a_moment_in_which_a_listing_shows_all(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, site: str
) -> None:
    lose(twin, dr_ctl)
    done(dr_ctl("failover", "--to", "paris", "--yes", *ACCEPTED))
    twin.heal()
    twin.start("london")
    asked, short = classic_ids._asked, 0

    def busy(access: Access, queue: Queue) -> tuple[dict[str, str | None], int, int]:
        """Each second listing there leaves out what is on its way to a consumer, or came while it was made."""
        nonlocal short
        found, before, after = asked(access, queue)
        if access.site == site and found:
            short += 1
            if short % 2:
                found.popitem()
        return found, before, after

    monkeypatch.setattr(classic_ids, "_asked", busy)

    taken_in = done(dr_ctl("reinstate", "london", "--yes"))

    assert short > 1
    assert {"DR-RETURN-001", "DR-REPLICA-007"} <= ids(taken_in)
    assert (serving(twin), parts(twin)) == (("paris",), (Role.REPLICA, Role.SOURCE))


def test_a_return_is_undone_where_no_listing_of_the_returned_site_shows_all(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not shown may be what only that site has: it would be left where it lies, and nobody told."""
    impatient(monkeypatch, compared_s=1.5)
    lose(twin, dr_ctl)
    done(dr_ctl("failover", "--to", "paris", "--yes", *ACCEPTED))
    twin.heal()
    twin.start("london")
    asked = classic_ids._asked

    def short(access: Access, queue: Queue) -> tuple[dict[str, str | None], int, int]:
        found, before, after = asked(access, queue)
        return ({} if (access.site, queue.name) == ("london", "orders.out") else found), before, after

    monkeypatch.setattr(classic_ids, "_asked", short)

    refused = dr_ctl("reinstate", "london", "--yes")

    assert refused.code == 20, refused.document
    assert "london: orders.out holds 1 message(s), and a listing shows 0 of them" in refused.document["summary"]
    assert "a whole listing of orders.out at london" in refused.err
    (told,) = (each["remedy"] for each in refused.document["findings"] if each["id"] == "DR-REPLICA-008")
    assert "maxBrowsePageSize of the policy entry for orders.out at london" in told
    assert (twin.depth("london", "orders.out"), serving(twin)) == (1, ("paris",))
    # Once the listing is whole, the same command does it.
    monkeypatch.setattr(classic_ids, "_asked", asked)
    done(dr_ctl("reinstate", "london", "--yes"))
    assert twin.depth("london", "dr-ctl.returned.london.orders.out") == 1


def test_two_sources_hand_nothing_over(twin: PlayedTwin, dr_ctl: Command) -> None:
    with twin.still():
        broker(twin, "paris").comes_closed = True
        broker(twin, "paris").become(Role.SOURCE)
        broker(twin, "paris").comes_closed = False

    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert ended.code == 10
    assert "DR-REPLICA-003" in ids(ended)


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "without effect"])
def test_a_replica_that_does_not_take_over_leaves_a_failover_undone(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    impatient(monkeypatch, activate_s=0.5)
    twin.kill("london")
    not_given(twin, "paris", monkeypatch, refused=refused)

    ended = dr_ctl("failover", "--to", "paris", "--yes", *ACCEPTED)

    assert (ended.code, ended.document["debts"]) == (20, []), ended.document
    assert parts(twin)[1] is Role.REPLICA


# a replica without a console


def test_a_replica_without_a_console_is_standby_by_what_its_source_says_and_cannot_be_moved_to(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    without_console(twin, "paris")

    assert roles(dr_ctl) == {"london": "serving", "paris": "standby"}
    assert "DR-REPLICA-004" in ids(dr_ctl("status"))
    ended = dr_ctl("swapover", "--to", "paris", "--yes")
    assert ended.code == 10
    assert "DR-REPLICA-004" in ids(ended)
    assert serving(twin) == ("london",)


def test_a_replica_without_a_console_is_no_dead_one(twin: PlayedTwin, dr_ctl: Command) -> None:
    without_console(twin, "paris")
    twin.kill("london")

    assert roles(dr_ctl) == {"london": "down", "paris": "unknown"}
    twin.kill("paris")
    assert roles(dr_ctl) == {"london": "down", "paris": "down"}


def test_without_its_address_no_broker_is_taken_for_down(twin: PlayedTwin, dr_ctl: Command) -> None:
    told = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
    for site in told["sites"].values():
        del site["brokers"][0]["replication"]
    twin.settings_path.write_text(json.dumps(told), encoding="utf-8")
    twin.kill("london")

    assert roles(dr_ctl) == {"london": "unknown", "paris": "standby"}
    refused = dr_ctl("failover", "--to", "paris", "--yes", *ACCEPTED)
    assert (refused.code, ids(refused)) == (10, {"DR-ALIVE-002"} | ids(refused))
    presumed = ("--presume-down", "london", "--reason", "its host is off")
    done(dr_ctl("failover", "--to", "paris", "--yes", *ACCEPTED, *presumed))


def test_a_source_that_closes_its_console_when_it_hands_over_is_standby(twin: PlayedTwin, dr_ctl: Command) -> None:
    without_console(twin, "london")
    nothing(twin, dr_ctl)

    done(dr_ctl("swapover", "--to", "paris", "--yes"))

    assert roles(dr_ctl) == {"london": "standby", "paris": "serving"}
    assert "DR-REPLICA-004" in ids(dr_ctl("status"))
