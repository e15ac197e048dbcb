"""One lock over both sites: moves drive its coordinators, so that no acceptor opens past the gate."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Outcome, Refused
from dr_ctl.topologies.common.tools import Sender
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.artemis import locks
from dr_ctl_lab.twin.artemis.broker import ArtemisBroker
from dr_ctl_lab.twin.kinds import BRIDGES
from tests.conftest import Command
from tests.twin.matrix import ACCEPTED, at_rest, done, serving

LOCKS, ALIVE = "DR-DOOR-008", "DR-ALIVE-001"
FAILOVER = ("failover", "--to", "paris", "--yes", *ACCEPTED)
SWAPOVER = ("swapover", "--to", "paris", "--yes")


@pytest.fixture
def brokers(twin: PlayedTwin) -> dict[str, ArtemisBroker]:
    named = {broker.site: broker for broker in twin.brokers(ArtemisBroker)}
    locks.joined(named["london"], named["paris"])
    return named


def status(brokers: dict[str, ArtemisBroker]) -> tuple[str, str]:
    return brokers["london"].coordinators[0].status, brokers["paris"].coordinators[0].status


def test_a_service_is_moved_there_and_back_by_the_coordinators_of_its_lock(
    twin: PlayedTwin, dr_ctl: Command, brokers: dict[str, ArtemisBroker]
) -> None:
    looked, planned = dr_ctl("validate", "--for", "swapover"), dr_ctl(*SWAPOVER, "--dry-run")

    ended = done(dr_ctl(*SWAPOVER))
    moved = status(brokers)
    done(dr_ctl("swapover", "--to", "london", "--yes"))

    assert [row["severity"] for row in looked.rows(LOCKS)] == ["info", "info"]
    calls = [f"{word} lock coordinator site-lock" for word in ("stop", "stop", "start")]
    shown = str(planned.document)
    found = [shown.find(f"{call} at {site}") for call, site in zip(calls, ("paris", "london", "paris"), strict=True)]
    assert -1 not in found
    assert found == sorted(found)
    assert moved == ("Stopped", "Locked")
    assert "london takes over by itself no more" in str(ended.texts(LOCKS))
    assert (serving(twin), status(brokers)) == (("london",), ("Locked", "Stopped"))


def test_what_a_move_did_to_locks_is_undone_at_the_source(
    twin: PlayedTwin, dr_ctl: Command, brokers: dict[str, ArtemisBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Sender.send

    def refusing(sender: Sender, calls: Sequence[Call]) -> list[Outcome]:
        opens = any(call.site == "paris" and call.about.startswith(("start", "open")) for call in calls)
        return [Refused("no") for _ in calls] if opens else send(sender, calls)

    monkeypatch.setattr(Sender, "send", refusing)
    ended = dr_ctl(*SWAPOVER)

    assert ended.code == 20, ended.document
    assert (serving(twin), status(brokers)) == (("london",), ("Locked", "Stopped"))


def test_a_site_is_fenced_and_opened_again_by_its_lock(
    twin: PlayedTwin, dr_ctl: Command, brokers: dict[str, ArtemisBroker]
) -> None:
    done(dr_ctl("fence", "london", "--yes"))
    fenced = serving(twin), status(brokers)
    done(dr_ctl("unfence", "london", "--yes"))

    assert fenced == ((), ("Stopped", "Stopped"))
    assert (serving(twin), status(brokers)) == (("london",), ("Locked", "Stopped"))


def test_a_saved_plan_rests_on_who_contends_for_the_lock(
    tmp_path: Path, dr_ctl: Command, brokers: dict[str, ArtemisBroker]
) -> None:
    file = str(tmp_path / "plan.json")
    done(dr_ctl("plan", "swapover", "--to", "paris", "--out", file))
    brokers["paris"].coordinators[0].stop()

    refused = dr_ctl("swapover", "--to", "paris", "--plan", file, "--yes")

    assert (refused.code, status(brokers)) == (10, ("Locked", "Stopped")), refused.document
    assert "locks" in str(refused.document)


@pytest.mark.parametrize(
    ("version", "words"),
    [("2.55.0", "2.55.0 cannot stop it"), ("2.56.0", "paris does not answer, and may take over the lock of site-lock")],
)
def test_a_fence_that_would_hand_the_lock_over_is_refused(
    twin: PlayedTwin, dr_ctl: Command, brokers: dict[str, ArtemisBroker], version: str, words: str
) -> None:
    if version == "2.56.0":
        twin.freeze("paris")
    for broker in brokers.values():
        broker.version = version
    before = at_rest(twin)

    refused = dr_ctl("fence", "london", "--yes")

    assert (refused.code, at_rest(twin)) == (10, before), refused.document
    assert words in str(refused.texts(LOCKS))


def test_a_failover_says_what_the_lock_has_done_and_opens_nothing_while_another_holds_it(
    twin: PlayedTwin, dr_ctl: Command, brokers: dict[str, ArtemisBroker]
) -> None:
    lock = brokers["paris"].coordinators[0].lock
    lock.leased = True
    twin.kill("london")
    held = dr_ctl(*FAILOVER)
    lock.leased = False
    ended = done(dr_ctl(*FAILOVER))
    taken_over = serving(twin), status(brokers)[1]
    twin.start("london")
    done(dr_ctl("failback", "--to", "london", "--yes"))

    assert held.code == 10, held.document
    assert "is held by another: london may serve" in held.texts(ALIVE)[0]
    assert taken_over == (("paris",), "Locked")
    assert (serving(twin), status(brokers)) == (("london",), ("Locked", "Stopped"))
    assert "paris was opened before this run: done by the lock (site-lock)" in str(ended.texts(LOCKS))


@pytest.mark.parametrize("topology", [BRIDGES])
def test_a_move_of_queues_starts_no_lock_and_is_refused_before_anything_is_changed(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    london, paris = twin.brokers(ArtemisBroker)
    with twin.still():
        paris.close_listener(paris.acceptors["clients"])
        locks.joined(london, paris)
    before = at_rest(twin)

    refused = dr_ctl(*SWAPOVER)

    assert (refused.code, refused.ids[0]) == (10, LOCKS), refused.document
    assert "starts no lock" in str(refused.texts(LOCKS))
    assert at_rest(twin) == before
