"""A lost site from the command line, on a twin: failover, what is owed, reinstate and failback."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from shutil import rmtree
from typing import Any

import pytest
import yaml

from dr_ctl.cli.asking import moment
from dr_ctl.core.clock import SystemClock, stamp
from dr_ctl.core.system import system
from dr_ctl.engine.runbook import shipped
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from dr_ctl.topologies.mirror.view import BrokerView
from tests.cli.conftest import Ended, Shell
from tests.cli.installation import NOT_NOW
from tests.cli.sites import Sites, sites
from tests.cli.test_gone_on_with import begun
from tests.cli.test_swapover import Terminal, person
from tests.looks import looked
from tests.report.scribe import NAME
from tests.rpo import test_bounds_asked_late as lives
from tests.twin.subject import until

__all__ = ["person", "sites"]  # fixtures

FAILED_OVER = ["createQueue(java.lang.String,boolean)"] * 2 + ["stop()", "start()"]
TAKEN_IN = ["pause(boolean)"] * 2 + ["start()"] + ["resume()"] * 2 + ["destroyQueue(java.lang.String,boolean)"] * 2
MOVED_BACK = ["pause()", "pause()", "stop()", "resume()", "resume()"]
PROBED = ["createQueue(java.lang.String,boolean)", "destroyQueue(java.lang.String,boolean)"]
UNKNOWN = {"at_most": None, "likely": None, "read_at": None}
DOUBLES = ("--accept-duplicates", "1000000")
OWED = [("fence", "london"), ("quarantine", "london")]


def failover(dr_ctl: Shell, *words: str) -> Ended:
    return dr_ctl("failover", "--to", "paris", "--json", *words)


def owed(ended: Ended) -> list[tuple[str, str]]:
    return [(debt["kind"], debt["site"]) for debt in ended.document["debts"]]


class TestLost:
    def test_the_other_serves_and_what_is_not_known_is_null(self, dr_ctl: Shell, sites: Sites) -> None:
        sites.lose()

        ended = failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown")

        assert (ended.code, ended.document["outcome"]) == (0, "ok"), ended.document
        assert ended.document["data"]["pairs"] == [{"name": "orders-1", "serving": "paris"}]
        assert ended.document["data"]["bounds"] == {
            "lost": {**UNKNOWN, "because": None},
            "duplicates": UNKNOWN,
            "queues": [],
            "age_s": None,
            "because": None,
        }
        assert ended.document["data"]["outage_s"] is None
        # They are out since the site was lost, not since the run began.
        assert "not applied yet: 0\n" in ended.err
        assert "an unknown number of messages may be lost" in ended.document["summary"]
        assert sites.changes == FAILED_OVER
        assert sites.paris.settable["doors"] == {"clients": True, "mirror": False}

    def test_what_is_owed_is_told_then_and_by_every_status_wherever_it_is_asked(
        self, dr_ctl: Shell, sites: Sites
    ) -> None:
        sites.lose()

        ended = failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown")

        here, elsewhere = (dr_ctl("--state-dir", at, "status", "--json") for at in ("state", "another"))
        assert owed(ended) == owed(here) == owed(elsewhere) == OWED
        assert all("dr-ctl reinstate london" in debt["remedy"] for debt in ended.document["debts"])
        sites.settings(paris=sites.london.url)  # now nobody answers
        assert (owed(dr_ctl("status", "--json")), dr_ctl("status", "--json").code) == (OWED, 22)

    def test_silence_is_no_proof_and_a_person_may_vouch_for_it(self, dr_ctl: Shell, sites: Sites) -> None:
        sites.lose(shown=False)

        asked = failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown")
        unexplained = failover(
            dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown", "--presume-down", "london"
        )
        vouched = failover(
            dr_ctl,
            "--yes",
            "--accept-loss",
            "unknown",
            "--accept-duplicates",
            "unknown",
            "--presume-down",
            "london",
            "--reason",
            "it burnt",
        )

        assert (asked.code, asked.ids[0]) == (10, "DR-ALIVE-002")
        assert "--presume-down london --reason" in asked.document["findings"][0]["remedy"]
        assert (unexplained.code, vouched.code, sites.changes) == (2, 0, FAILED_OVER)

    @pytest.mark.parametrize("accepted", [[], ["--accept-loss", "1000000"]])
    def test_a_loss_that_is_not_known_is_not_covered_by_a_number(
        self, dr_ctl: Shell, sites: Sites, accepted: list[str]
    ) -> None:
        sites.lose()

        ended = failover(dr_ctl, "--yes", *accepted)

        assert (ended.code, ended.document["outcome"], sites.changes) == (11, "loss_refused", [])
        assert ended.document["data"]["bounds"]["lost"] == {**UNKNOWN, "because": None}
        assert "--accept-loss unknown --accept-duplicates unknown" in ended.document["findings"][0]["remedy"]
        assert not (dr_ctl.state / "runs").exists()

    def test_a_quarantine_that_a_restart_ended_is_told(self, dr_ctl: Shell, sites: Sites) -> None:
        sites.lose()
        failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown")
        assert "DR-RETURN-004" not in dr_ctl("status", "--json").ids

        sites.paris.let_in("mirror")

        assert "DR-RETURN-004" in dr_ctl("status", "--json").ids

    def test_a_second_time_there_is_nothing_to_do(self, dr_ctl: Shell, sites: Sites) -> None:
        sites.lose()
        failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown")
        sites.forget()

        again = failover(dr_ctl, "--yes")

        assert (again.code, again.document["run"], sites.changes) == (0, None, [])
        assert "serves already" in again.document["summary"]
        assert owed(again) == OWED

    def test_at_a_site_that_somebody_opened_by_hand_all_of_it_is_owed_still(self, dr_ctl: Shell, sites: Sites) -> None:
        sites.lose()
        sites.paris.let_in()

        refused = failover(dr_ctl, "--yes")
        ended = failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown")

        assert (refused.code, refused.document["data"]["bounds"]["lost"]["at_most"]) == (11, None)
        assert ended.code == 0, ended.document
        assert owed(ended) == OWED
        assert not sites.paris.broker.acceptors["mirror"].started
        assert sites.paris.changes == FAILED_OVER[:3], "it is open already"

    def test_a_site_whose_link_has_never_mirrored_anything_can_serve(
        self, dr_ctl: Shell, sites: Sites, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sites.lose()
        monkeypatch.setattr(BrokerView, "outflow", property(lambda _: None))

        ready = dr_ctl("validate", "--for", "failover", "--json")
        ended = failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown")

        assert (
            "refused without --accept-loss unknown --accept-duplicates unknown: an unknown" in ready.document["summary"]
        )
        assert ready.code == 10
        assert ended.code == 0, ended.document
        assert sites.paris.open

    @pytest.mark.parametrize("words", [["--dry-run"], []], ids=["dry_run", "declined"])
    def test_unless_it_is_wanted_nothing_is_changed(self, dr_ctl: Shell, sites: Sites, words: list[str]) -> None:
        sites.lose()
        before = sites.paris.settable

        ended = failover(dr_ctl, "--accept-loss", "unknown", "--accept-duplicates", "unknown", *words)

        assert (ended.code, sites.changes) == (0 if words else 14, [])
        assert sites.paris.settable == before
        assert not (dr_ctl.state / "runs").exists()
        if words:
            assert [step["verb"] for step in ended.document["data"]["plan"]["steps"]][4:6] == ["fence", "quarantine"]

    def test_it_is_ready_for_it_while_the_source_is_away(self, dr_ctl: Shell, sites: Sites) -> None:
        unwatched = dr_ctl("validate", "--for", "failover", "--json")
        looked(dr_ctl.folder)
        before = dr_ctl("validate", "--for", "failover", "--json")
        rmtree(dr_ctl.folder / "history")
        sites.lose()

        ended = dr_ctl("validate", "--for", "failover", "--json")

        assert (before.code, before.document["summary"]) == (
            10,
            "failover to paris: refused while london serves; if london is lost: ready",
        )
        price = "an unknown number of messages may be lost, an unknown number of duplicates are possible"
        decides = (
            f"refused without --accept-loss unknown --accept-duplicates unknown: {price}; who owns that limit decides"
        )
        assert (ended.code, ended.document["summary"]) == (10, f"failover to paris: {decides}")
        assert (
            unwatched.document["summary"]
            == f"failover to paris: refused while london serves; if london is lost: {decides}"
        )

    @pytest.mark.parametrize(("typed", "code"), [("paris\n", 0), ("london\n", 14), ("y\n", 14)])
    def test_a_person_agrees_with_the_targets_name_beside_the_price(
        self, dr_ctl: Shell, sites: Sites, person: Callable[[str], Terminal], typed: str, code: int
    ) -> None:
        sites.lose()
        person(typed)

        ended = failover(dr_ctl, "--accept-loss", "unknown", "--accept-duplicates", "unknown")

        price = "an unknown number of messages may be lost, an unknown number of duplicates are possible"
        assert ended.code == code, ended.document
        assert f"Move from london to paris: {price}; clients of 2 queues are served by paris then." in ended.err
        assert "Type `paris` to go on:" in ended.err


class TestAlive:
    def test_a_site_that_serves_is_never_failed_over(self, dr_ctl: Shell, sites: Sites) -> None:
        ended = failover(
            dr_ctl,
            "--yes",
            "--accept-loss",
            "unknown",
            "--accept-duplicates",
            "unknown",
            "--presume-down",
            "london",
            "--reason",
            "so",
        )

        assert (ended.code, ended.document["outcome"], sites.changes) == (12, "serving_site_alive", [])
        assert "dr-ctl swapover --to paris" in ended.document["findings"][0]["remedy"]

    @pytest.mark.wire
    @pytest.mark.parametrize("sure", [[], ["--presume-down", "london", "--reason", "so"]])
    def test_nor_is_one_that_takes_the_connection_and_says_nothing(
        self, dr_ctl: Shell, sites: Sites, sure: list[str]
    ) -> None:
        books = dr_ctl.folder / "runbooks"
        books.mkdir()
        told = (shipped() / "failover.yaml").read_text(encoding="utf-8")
        (books / "failover.yaml").write_text(told.replace("lost: 5s", "lost: 600ms"), encoding="utf-8")
        with socket.create_server(("127.0.0.1", 0)) as frozen:
            url = f"http://127.0.0.1:{frozen.getsockname()[1]}/console/jolokia"
            sites.settings(london=url, runbooks=str(books))

            ended = failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown", *sure)

        assert (ended.code, ended.document["outcome"], sites.changes) == (12, "serving_site_alive", [])
        assert "sick or frozen" in ended.document["summary"]


PRESUMED = ["--presume-down", "london", "--reason", "so"]


def refusing() -> int:
    """A port where nobody is."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def logged_in_with(dr_ctl: Shell, password: dict[str, str]) -> None:
    """London's settings with another password."""
    path = dr_ctl.folder / "dr-ctl.yaml"
    told = yaml.safe_load(path.read_text(encoding="utf-8"))
    told["sites"]["london"]["brokers"][0]["password"] = password
    path.write_text(yaml.safe_dump(told), encoding="utf-8")


class TestNotRead:
    """London serves; this machine lacks its password."""

    @pytest.mark.parametrize(
        "words", [[], PRESUMED, [*PRESUMED, "--accept-loss", "unknown", "--accept-duplicates", "unknown"]]
    )
    def test_a_refused_login_is_a_sign_of_life_that_no_word_outweighs(
        self, dr_ctl: Shell, sites: Sites, words: list[str]
    ) -> None:
        logged_in_with(dr_ctl, {"plain": "wrong"})

        ended = failover(dr_ctl, "--yes", *words)

        assert (ended.code, ended.ids[0], sites.changes) == (12, "DR-ALIVE-001", []), ended.document
        assert "One attempt was made here" in ended.document["findings"][0]["remedy"]
        assert ("DR-ALIVE-003" in ended.ids) == bool(words)

    def test_a_word_on_a_site_that_was_never_asked_counts_and_that_nobody_asked_stands_first(
        self, dr_ctl: Shell, sites: Sites
    ) -> None:
        logged_in_with(dr_ctl, {"file": "gone"})

        ended = failover(dr_ctl, "--dry-run", "--accept-loss", "unknown", "--accept-duplicates", "unknown", *PRESUMED)

        assert (ended.code, ended.ids[0]) == (0, "DR-ROLE-019")
        assert "london was not read, and may serve" in ended.document["findings"][0]["text"]

    @pytest.mark.parametrize("password", [{"plain": "wrong"}, {"file": "gone"}])
    def test_no_failover_is_offered_for_it(self, dr_ctl: Shell, sites: Sites, password: dict[str, str]) -> None:
        logged_in_with(dr_ctl, password)

        validated = dr_ctl("validate", "--json")
        moved = dr_ctl("swapover", "--to", "paris", "--yes", "--json")
        checked = dr_ctl("check", "--within", "30s", "--json")

        remedies = {each["id"]: each["remedy"] for each in validated.document["findings"]}
        assert remedies["DR-ROLE-005"] == remedies["DR-SITE-001"]
        assert (moved.code, moved.document["findings"][0]["remedy"]) == (10, remedies["DR-SITE-001"])
        assert (checked.code, "no site serves" in checked.document["summary"]) == (3, False)
        ready = validated.document["data"]["operations"]["failover"]["verdict"]
        assert ("refused while london answers, and may serve" in ready) == ("plain" in password)


class TestSignsOfLife:
    """London serves, and neither its console nor the address where a client is greeted answers."""

    @pytest.fixture
    def unheard(self, sites: Sites) -> Sites:
        sites.settings(london=f"http://127.0.0.1:{refusing()}/console/jolokia", stomp=f"stomp://127.0.0.1:{refusing()}")
        return sites

    @pytest.mark.parametrize("cut", ["london", "paris"])
    def test_an_attached_link_is_one_although_nothing_moves_on_it(
        self, dr_ctl: Shell, unheard: Sites, cut: str
    ) -> None:
        unheard.twin.cut(cut)
        until(lambda: not unheard.twin.host(cut).broker.attached)

        ended = failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown")

        assert (ended.code, ended.ids[0], unheard.changes) == (10, "DR-ALIVE-002", []), ended.document
        assert (
            failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown", *PRESUMED).code == 0
        )

    def test_without_any_it_is_down(self, dr_ctl: Shell, unheard: Sites) -> None:
        unheard.twin.kill("london")
        until(lambda: not unheard.paris.broker.attached)

        assert failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown").code == 0

    @pytest.mark.wire
    def test_another_door_that_the_survivor_knows_of_is_one(self, dr_ctl: Shell, sites: Sites) -> None:
        sites.lose()
        greeted = "stomp://{}:{}".format(*sites.paris.host.stomp)
        with socket.create_server(("127.0.0.1", 0)) as another:
            # At London's host something takes connections where the client acceptor of Paris has its port.
            sites.paris.broker.acceptors["clients"].port = another.getsockname()[1]
            sites.settings(stomp=f"stomp://localhost:{refusing()}", paris_stomp=greeted)

            ended = failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown")

        assert (ended.code, ended.ids[0], sites.changes) == (10, "DR-ALIVE-002", []), ended.document
        assert failover(dr_ctl, "--dry-run", "--accept-loss", "unknown", "--accept-duplicates", "unknown").code == 0

    def test_an_address_that_is_no_client_acceptors_is_told(self, dr_ctl: Shell, sites: Sites) -> None:
        sites.settings(stomp=f"stomp://127.0.0.1:{refusing()}")

        ended = dr_ctl("validate", "--json")

        assert {"DR-DOOR-009", "DR-DOOR-010"} <= {*ended.ids}


class TestBackAgain:
    @pytest.mark.wire
    def test_a_site_that_is_back_before_the_doors_open_is_seen_whatever_was_spent(
        self, dr_ctl: Shell, sites: Sites, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        books = dr_ctl.folder / "runbooks"
        books.mkdir()
        told = (shipped() / "failover.yaml").read_text(encoding="utf-8")
        (books / "failover.yaml").write_text(told.replace("lost: 5s", "lost: 50ms"), encoding="utf-8")
        named, found = threading.Event(), socket.getaddrinfo

        def resolve(host: Any, *more: Any, **others: Any) -> Any:
            if host == "london.test":
                named.wait()
            return found("127.0.0.1" if host == "london.test" else host, *more, **others)

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        sites.settings(london=sites.london.url.replace("127.0.0.1", "london.test"), runbooks=str(books))
        sites.paris.before_change = lambda _: named.set()

        ended = failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown", *PRESUMED)

        assert ended.code == 20, ended.document
        assert "london is open: a second site is never opened" in ended.document["summary"]
        assert (sites.london.open, sites.paris.open) == (True, False)


class TestUndone:
    def test_a_target_that_does_not_open_is_left_as_it_was(self, dr_ctl: Shell, sites: Sites) -> None:
        sites.lose()
        before = sites.paris.settable
        sites.paris.instead["start clients"] = NOT_NOW

        ended = failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown")

        assert (ended.code, ended.document["outcome"]) == (20, "reverted"), ended.document
        assert ended.document["data"]["undone"] is True
        assert ended.document["summary"].endswith("undone: no site serves, as before")
        assert (sites.paris.settable, owed(ended)) == (before, [])
        assert owed(dr_ctl("status", "--json")) == []

    def test_the_same_command_then_does_it(self, dr_ctl: Shell, sites: Sites) -> None:
        sites.lose()
        sites.paris.instead["start clients"] = NOT_NOW
        failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown")
        del sites.paris.instead["start clients"]

        assert failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown").code == 0


class TestInPlaceOfAnother:
    """A swapover of this STATE died behind its fence, and then its source was lost."""

    @pytest.fixture(autouse=True)
    def _begun(self, dr_ctl: Shell, sites: Sites) -> None:
        begun(dr_ctl, sites, "quiesce", "fence")
        sites.lose()

    def test_it_waits_for_a_reason(self, dr_ctl: Shell, sites: Sites) -> None:
        ended = failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown")

        assert (ended.code, ended.document["run"], ended.ids, sites.changes) == (10, NAME, ["DR-RUN-003"], [])
        assert "--reason" in ended.document["findings"][0]["remedy"]

    def test_with_one_it_takes_its_place(self, dr_ctl: Shell, sites: Sites) -> None:
        ended = failover(
            dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown", "--reason", "london burns"
        )

        assert ended.code == 0, ended.document
        closed = json.loads((dr_ctl.state / "runs" / NAME / "result.json").read_text(encoding="utf-8"))
        assert closed["summary"] == f"superseded by {ended.document['run']}: london burns"
        assert dr_ctl("runs", "verify", "--json").code == 0
        assert dr_ctl("status", "--json").document["data"]["open_run"] is None
        assert dr_ctl("resume", "--yes", "--json").ids == ["DR-RUN-004"]

    def test_where_it_had_opened_its_target_that_run_is_closed_and_the_lost_site_kept_out(
        self, dr_ctl: Shell, sites: Sites
    ) -> None:
        sites.paris.let_in()

        refused = failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown")
        ended = failover(
            dr_ctl,
            "--yes",
            "--accept-loss",
            "unknown",
            "--accept-duplicates",
            "unknown",
            "--reason",
            "its process died",
        )

        assert (refused.code, refused.ids) == (10, ["DR-RUN-003"])
        assert (ended.code, owed(ended)) == (0, OWED), ended.document
        assert dr_ctl("status", "--json").document["data"]["open_run"] is None

    def test_a_refusal_leaves_it_open(self, dr_ctl: Shell, sites: Sites) -> None:
        ended = failover(dr_ctl, "--yes", "--reason", "london burns")

        assert (ended.code, sites.changes) == (11, [])
        assert dr_ctl("status", "--json").document["data"]["open_run"] == NAME


class TestBack:
    @pytest.fixture(autouse=True)
    def _failed_over(self, dr_ctl: Shell, sites: Sites) -> None:
        sites.lose()
        assert failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown").code == 0

    @pytest.mark.parametrize("opened", [False, True], ids=["closed", "open"])
    def test_it_is_taken_in_and_waits(self, dr_ctl: Shell, sites: Sites, opened: bool) -> None:
        sites.come_back(opened=opened)

        ended = dr_ctl("reinstate", "london", "--yes", "--json")

        assert ended.code == 0, ended.document
        assert ended.document["summary"] == "london is taken in; paris serves"
        assert sites.changes == (["stop()"] if opened else []) + TAKEN_IN
        assert [told["doors"] for told in sites.settable] == [
            {"clients": False, "mirror": True},
            {"clients": True, "mirror": True},
        ]
        assert [told["paused"] for told in sites.settable] == [set(), set()]
        assert (owed(ended), owed(dr_ctl("status", "--json"))) == ([], [])
        assert [id_ in ended.ids for id_ in ("DR-RETURN-001", "DR-RETURN-002")] == [opened, opened]

    @pytest.mark.parametrize("opened", [False, True])
    def test_status_says_when_it_came_back_open(self, dr_ctl: Shell, sites: Sites, opened: bool) -> None:
        sites.come_back(opened=opened)

        ended = dr_ctl("status", "--json")

        assert ("DR-RETURN-003" in ended.ids) is opened
        assert (ended.document["summary"] == "both sites let clients in") is opened

    def test_what_it_brought_is_counted_by_its_identity(self, dr_ctl: Shell, sites: Sites) -> None:
        sites.come_back()

        run = dr_ctl("reinstate", "london", "--yes", "--json").document["run"]

        lines = (dr_ctl.state / "runs" / run / "journal.jsonl").read_text(encoding="utf-8").splitlines()
        told = {each["step"]: each["evidence"] for each in map(json.loads, lines) if each["outcome"] == "succeeded"}
        assert told["03-residue"]["messages"] == 2
        # A broker that starts tells its peer each address and each queue again: they are no acknowledgements.
        assert told["03-residue"]["acknowledgements"] == 1
        assert told["05-reconcile"]["recovered"] == 2
        assert told["05-reconcile"]["ids"] == {"orders.in": sites.lost_ids}
        assert (told["05-reconcile"]["acknowledgements_without_message"], told["05-reconcile"]["left_over"]) == (0, [])

    def test_what_is_too_deep_to_look_at_is_not_counted_as_none(
        self, dr_ctl: Shell, sites: Sites, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sites.come_back()
        monkeypatch.setattr("dr_ctl.topologies.mirror.parity.ORIGINS_UP_TO", 0)

        run = dr_ctl("reinstate", "london", "--yes", "--json").document["run"]

        lines = (dr_ctl.state / "runs" / run / "journal.jsonl").read_text(encoding="utf-8").splitlines()
        told = {each["step"]: each["evidence"] for each in map(json.loads, lines) if each["outcome"] == "succeeded"}
        assert told["05-reconcile"]["recovered"] is None
        assert "not looked at one by one: orders.in" in told["05-reconcile"]["text"]

    def test_its_lasting_pauses_stand_in_the_lock_before_they_are_made(self, dr_ctl: Shell, sites: Sites) -> None:
        sites.come_back()
        seen: list[Any] = []
        sites.paris.before_change = lambda operation: (
            seen.append(sites.paris.document("dr-ctl.lock.paris.2")) if operation == "pause(boolean)" else None
        )

        run = dr_ctl("reinstate", "london", "--yes", "--json").document["run"]

        assert [each["paused"] for each in seen] == [{run: ["orders.audit", "orders.in"]}] * 2

    def test_a_second_time_there_is_nothing_to_do(self, dr_ctl: Shell, sites: Sites) -> None:
        sites.come_back()
        dr_ctl("reinstate", "london", "--yes", "--json")
        sites.forget()

        again = dr_ctl("reinstate", "london", "--yes", "--json")

        assert (again.code, again.document["run"], sites.changes) == (0, None, [])
        assert again.document["summary"] == "london is taken in already; nothing was changed"

    @pytest.mark.parametrize("opened", [False, True], ids=["closed", "open"])
    def test_a_failback_takes_it_in_and_moves_back(self, dr_ctl: Shell, sites: Sites, opened: bool) -> None:
        sites.come_back(opened=opened)

        ended = dr_ctl("failback", "--to", "london", "--yes", "--json")

        assert ended.code == 0, ended.document
        assert ended.document["data"]["pairs"] == [{"name": "orders-1", "serving": "london"}]
        assert sites.paris.changes == TAKEN_IN + MOVED_BACK
        assert sites.london.changes == (["stop()"] if opened else []) + ["start()", *PROBED]
        assert [told["doors"]["clients"] for told in sites.settable] == [True, False]
        assert owed(ended) == []

    def test_a_no_to_the_question_leaves_it_taken_in(
        self, dr_ctl: Shell, sites: Sites, person: Callable[[str], Terminal]
    ) -> None:
        sites.come_back()
        person("london\nn\n")

        ended = dr_ctl("failback", "--to", "london", "--json")

        assert (ended.code, ended.document["outcome"]) == (14, "declined"), ended.document
        assert "Both sites hold the same. Move the service back now?" in ended.err
        assert (sites.changes, owed(ended)) == (TAKEN_IN, [])
        assert dr_ctl("status", "--json").document["data"]["open_run"] is None

    @pytest.mark.parametrize(
        ("site", "verb"), [("paris", "start mirror"), ("paris", "pause"), ("london", "start clients")]
    )
    def test_what_fails_on_the_way_is_undone_as_far_as_it_was_not_wanted_for_itself(
        self, dr_ctl: Shell, sites: Sites, site: str, verb: str
    ) -> None:
        sites.come_back()
        before = sites.settable
        getattr(sites, site).instead[verb] = NOT_NOW

        ended = dr_ctl("failback", "--to", "london", "--yes", "--json", "--timeout", "2s")

        taken_in = site == "london"
        assert ended.code in (20, 24), ended.document
        assert ended.document["summary"].endswith("undone: paris serves again")
        assert (owed(ended) == []) is taken_in
        assert sites.paris.settable["doors"] == {"clients": True, "mirror": taken_in}
        assert (sites.settable == before) is not taken_in

    def test_a_dry_run_shows_both_and_changes_nothing(self, dr_ctl: Shell, sites: Sites) -> None:
        sites.come_back()
        before = sites.settable

        ended = [dr_ctl(*words, "--dry-run") for words in (["reinstate", "london"], ["failback", "--to", "london"])]

        assert [each.code for each in ended] == [0, 0]
        assert (sites.changes, sites.settable) == ([], before)

    def test_a_swapover_does_not_take_it_in(self, dr_ctl: Shell, sites: Sites) -> None:
        sites.come_back()

        ended = dr_ctl("swapover", "--to", "london", "--yes", "--json")

        assert (ended.code, sites.changes) == (10, [])
        assert "DR-DOOR-004" in ended.ids


@pytest.fixture
def since(dr_ctl: Shell, sites: Sites) -> datetime:
    """Looks at ten messages a second, the last one ten minutes ago, with seven to ship; then silence."""
    last = system().now().replace(microsecond=0) - timedelta(minutes=10)
    rows = []
    for second, depth, added in ((-10, 0, 0), (-5, 3, 50), (0, 7, 100)):
        at = last + timedelta(seconds=second)
        rows.append(Row(site="london", ts=at, pair="orders-1", kind="site", name="serving", took_ms=0))
        counted = {"depth": depth, "delivering": 0, "added": added, "removed": added - depth}
        rows.append(Row(site="london", ts=at, pair="orders-1", kind="mixed", name="*", start="1", **counted))
    write(rows, dr_ctl.folder / "history")
    sites.lose(shown=False)
    return last


class TestWord:
    """Nobody saw the site down, and somebody knows when its service ended."""

    SURE = ("--presume-down", "london", "--reason", "power was cut")

    def test_it_makes_the_bound_finite_and_stands_in_the_journal(self, dr_ctl: Shell, since: datetime) -> None:
        word = (since + timedelta(seconds=3)).isoformat()

        refused = failover(dr_ctl, "--yes", "--accept-loss", "107", *DOUBLES, *self.SURE)
        served = failover(dr_ctl, "--yes", "--accept-loss", "107", *DOUBLES, *self.SURE, "--silent-since", word)

        assert refused.code == 11
        [finding] = [each for each in refused.document["findings"] if each["id"] == "DR-LOSS-001"]
        assert "= 7 neither shipped nor consumed at the reading of" in finding["text"]
        assert "above what was accepted. Whoever owns that limit decides" in finding["remedy"]
        assert "--silent-since T --reason TEXT" in finding["remedy"]
        quoted, until = re.findall(r"--accept-loss (\d+) \(good until ([^)]+)\)", finding["remedy"])[0]
        assert int(quoted) > refused.document["data"]["bounds"]["lost"]["at_most"] + 10 * 300
        assert datetime.fromisoformat(until) > system().now() + timedelta(minutes=4)
        ended_by = re.findall(r"With 107 accepted london must have ended by (\S+):", finding["remedy"])[0]
        assert since + timedelta(seconds=4.8) <= datetime.fromisoformat(ended_by) <= since + timedelta(seconds=5)
        assert (served.code, served.document["data"]["bounds"]["lost"]["at_most"]) == (0, 107)
        assert served.document["data"]["bounds"]["because"].startswith(
            "likely 9, at most 107, because 107 = 7 neither shipped"
        )
        assert re.search(r"without that word at most \d{4,}$", served.document["data"]["bounds"]["because"])
        plan = json.loads((dr_ctl.state / "runs" / served.document["run"] / "plan.json").read_text("utf-8"))
        assert plan["ask"]["silent_since"] == stamp(since + timedelta(seconds=3))

    @pytest.mark.parametrize("dry", [(), ("--dry-run",)])
    def test_a_moment_before_a_look_that_saw_the_site_serve_is_refused_with_both(
        self, dr_ctl: Shell, since: datetime, sites: Sites, dry: tuple[str, ...]
    ) -> None:
        word = since - timedelta(seconds=1)
        more = ("--accept-loss", "unknown", "--accept-duplicates", "unknown", "--silent-since", word.isoformat())

        ended = failover(dr_ctl, "--yes", *dry, *self.SURE, *more)

        assert (ended.code, ended.ids[0], sites.changes) == (10, "DR-LOSS-004", [])
        assert f"was seen to serve at {stamp(since)}, after {stamp(word)}" in ended.document["summary"]

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["--silent-since", "10m"], "--silent-since needs --reason"),
            (["--silent-since", "then", "--reason", "x"], "neither a moment nor a duration"),
            (["--silent-since", "2999-01-01T00:00:00Z", "--reason", "x"], "lies in the future"),
        ],
    )
    def test_a_word_that_cannot_be_is_refused(self, dr_ctl: Shell, sites: Sites, words: list[str], says: str) -> None:
        ended = failover(dr_ctl, "--yes", *words)

        assert ended.code == 2
        assert says in ended.document["summary"]


class TestAskedLate:
    def test_ten_minutes_after_a_death_that_was_seen_at_once_no_more_is_lost(
        self, dr_ctl: Shell, sites: Sites, since: datetime
    ) -> None:
        """A monitor writes a file each minute; the later files hold nothing but that london is down."""
        sites.settings(stomp="stomp://{}:{}".format(*sites.london.host.stomp))
        for minute in range(10):
            moments = [since + timedelta(minutes=minute, seconds=second) for second in range(5, 65, 5)]
            write(
                [Row(site="london", ts=at, pair="orders-1", kind="site", name="down") for at in moments],
                dr_ctl.folder / "history",
            )

        refused, ended = (failover(dr_ctl, "--dry-run", "--accept-loss", most, *DOUBLES) for most in ("106", "107"))

        assert [refused.code, ended.code] == [11, 0], ended.document
        assert "up to 107 message(s) may be lost" in refused.document["summary"]

    @pytest.mark.parametrize(
        "name", ["files of a minute", pytest.param("a last look that was answered late", marks=pytest.mark.deep)]
    )
    def test_one_death_has_one_price_whenever_the_command_is_typed(
        self, dr_ctl: Shell, sites: Sites, name: str
    ) -> None:
        sites.settings(stomp="stomp://{}:{}".format(*sites.london.host.stomp))
        sites.lose()

        prices = {}
        for delay_s in lives.DELAYS_S:
            shutil.rmtree(dr_ctl.folder / "history", ignore_errors=True)
            lives.died_ago(dr_ctl.folder / "history", delay_s, lives.CHANGES[name])
            ended = failover(dr_ctl, "--dry-run", "--accept-loss", "100000", *DOUBLES)
            bounds = ended.document["data"]["bounds"]
            prices[delay_s] = (
                ended.code,
                bounds["lost"]["at_most"],
                bounds["lost"]["likely"],
                bounds["duplicates"]["at_most"],
            )

        assert prices[5][0] == 0
        assert isinstance(prices[5][1], int)
        assert prices == dict.fromkeys(lives.DELAYS_S, prices[5])


class TestWhatIsAdvised:
    def test_no_move_over_a_link_that_is_cut(self, dr_ctl: Shell, sites: Sites) -> None:
        sites.twin.cut("london")
        until(lambda: not sites.london.broker.attached)

        ended = failover(dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown")

        remedy = ended.document["findings"][0]["remedy"]
        assert (ended.code, ended.ids[0]) == (12, "DR-ALIVE-001")
        assert "swapover" not in remedy
        assert "`dr-ctl link restart london`" in remedy

    def test_a_word_on_a_site_that_gives_signs_of_life_is_not_believed_and_that_is_said(
        self, dr_ctl: Shell, sites: Sites
    ) -> None:
        ended = failover(dr_ctl, "--yes", "--presume-down", "london", "--reason", "so")

        assert ended.ids[:2] == ["DR-ALIVE-001", "DR-ALIVE-003"]


class TestClock:
    """This machine's clock is behind the brokers'."""

    def test_it_shrinks_no_bound_and_is_said(
        self, dr_ctl: Shell, since: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(SystemClock, "now", lambda self: system().now() - timedelta(seconds=50))

        refused = failover(
            dr_ctl, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown", "--dry-run", *TestWord.SURE
        )
        ended = failover(dr_ctl, "--yes", "--accept-loss", "100000", *DOUBLES, "--dry-run", *TestWord.SURE)

        passed_s = int((system().now() - since).total_seconds())
        assert ended.code == 0, ended.document
        assert ended.document["data"]["bounds"]["lost"]["at_most"] >= 7 + 10 * (passed_s - 5)
        assert refused.code == 11  # what is known is not accepted as unknown
        assert "`unknown` accepts only what is not" in refused.document["findings"][0]["remedy"]
        served = failover(dr_ctl, "--yes", "--accept-loss", "100000", *DOUBLES, *TestWord.SURE)
        assert "DR-LOSS-003" in served.ids


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ("09:15", "2026-11-21T09:15:00.000Z"),
        ("09:15:30Z", "2026-11-21T09:15:30.000Z"),
        ("12:30", "2026-11-20T12:30:00.000Z"),  # of the day before: today that is still to come
        ("09:15+02:00", "2026-11-21T07:15:00.000Z"),
        ("2026-11-21T09:15", "2026-11-21T09:15:00.000Z"),
        ("10m", "2026-11-21T11:50:00.000Z"),
    ],
)
def test_a_moment_is_typed_as_a_clock_shows_it_and_is_utc(given: str, means: str) -> None:
    @dataclass
    class Session:
        clock: Any

    @dataclass
    class Noon:
        def now(self) -> datetime:
            return datetime(2026, 11, 21, 12, tzinfo=UTC)

    at = moment(Session(Noon()), "--silent-since", given)  # type: ignore[arg-type]

    assert at is not None
    assert stamp(at) == means
