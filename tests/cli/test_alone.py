"""The steps one by one: quiesce, fence, drain, verify, activate, unfence, on a pair that answers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.cli.conftest import Ended, Shell
from tests.cli.installation import NOT_NOW, Installation
from tests.twin.subject import until


def done(dr_ctl: Shell, *words: str) -> Ended:
    return dr_ctl(*words, "--yes", "--json")


def doors(installation: Installation) -> list[bool]:
    return [told["doors"]["clients"] for told in installation.settable]


def paused(installation: Installation) -> list[int]:
    return [len(told["paused"]) for told in installation.settable]


class TestInTheirOrder:
    def test_they_make_a_swapover(self, dr_ctl: Shell, installation: Installation) -> None:
        codes = [
            done(dr_ctl, *words).code
            for words in (
                ("quiesce", "london"),
                ("fence", "london"),
                ("drain", "--to", "paris"),
                ("activate", "paris"),
            )
        ]

        assert codes == [0, 0, 0, 0]
        assert doors(installation) == [False, True]
        assert paused(installation) == [0, 0]
        assert installation.paris.document("dr-ctl.receipt.paris") is None

    def test_each_leaves_a_run_of_its_own(self, dr_ctl: Shell, installation: Installation) -> None:
        told = done(dr_ctl, "quiesce", "london").document

        assert "-quiesce-london-" in told["run"]
        assert told["data"]["pairs"] == [{"name": "orders-1", "serving": "london"}]
        assert dr_ctl("runs", "verify", "--json").code == 0
        assert dr_ctl("runs", "show", told["run"]).code == 0

    def test_what_quiesce_paused_is_seen_and_lifted_from_anywhere(
        self, dr_ctl: Shell, installation: Installation
    ) -> None:
        run = done(dr_ctl, "quiesce", "london").document["run"]
        dr_ctl.state.rename(dr_ctl.folder / "another host's")

        seen = dr_ctl("status", "--json").document
        unfenced = done(dr_ctl, "unfence", "london")

        [pauses] = [each for each in seen["findings"] if each["id"] == "DR-QUEUE-001"]
        assert f"paused by {run}" in pauses["text"]
        assert (unfenced.code, paused(installation), doors(installation)) == (0, [0, 0], [True, False])
        assert [each["paused"] for each in dr_ctl("status", "--json").document["data"]["locks"]] == []

    def test_a_swapover_goes_on_from_what_quiesce_paused(self, dr_ctl: Shell, installation: Installation) -> None:
        done(dr_ctl, "quiesce", "london")

        assert done(dr_ctl, "swapover", "--to", "paris").code == 0
        assert (paused(installation), doors(installation)) == ([0, 0], [False, True])

    def test_unfence_undoes_a_fence(self, dr_ctl: Shell, installation: Installation) -> None:
        before = installation.settable
        done(dr_ctl, "quiesce", "london")
        done(dr_ctl, "fence", "london")

        unfenced = done(dr_ctl, "unfence", "london")

        assert (unfenced.code, unfenced.document["summary"]) == (0, "london serves again")
        assert installation.settable == before


class TestTwice:
    @pytest.mark.parametrize(
        ("first", "again"),
        [
            ([], ("unfence", "london")),
            ([("fence", "london")], ("fence", "london")),
            ([("fence", "london")], ("quiesce", "london")),
            ([("swapover", "--to", "paris")], ("activate", "paris")),
            ([("swapover", "--to", "paris")], ("unfence", "paris")),
        ],
    )
    def test_what_holds_already_is_left_alone(
        self, dr_ctl: Shell, installation: Installation, first: list[tuple[str, ...]], again: tuple[str, ...]
    ) -> None:
        for words in first:
            assert done(dr_ctl, *words).code == 0
        installation.forget()

        ended = done(dr_ctl, *again)

        assert (ended.code, ended.document["run"], installation.changes) == (0, None, [])


class TestRefused:
    @pytest.mark.parametrize(
        ("first", "words", "id_"),
        [
            ([], ("drain", "--to", "paris"), "DR-ROLE-010"),
            ([], ("activate", "paris"), "DR-ROLE-011"),
            ([], ("unfence", "paris"), "DR-ROLE-011"),
            ([("swapover", "--to", "paris")], ("unfence", "london"), "DR-ROLE-011"),
            ([("swapover", "--to", "paris")], ("drain", "--to", "paris"), "DR-ROLE-012"),
        ],
    )
    def test_by_the_roles(
        self,
        dr_ctl: Shell,
        installation: Installation,
        first: list[tuple[str, ...]],
        words: tuple[str, ...],
        id_: str,
    ) -> None:
        for each in first:
            assert done(dr_ctl, *each).code == 0
        before = installation.settable

        ended = done(dr_ctl, *words)

        assert (ended.code, ended.ids[0], ended.document["run"]) == (10, id_, None)
        assert installation.settable == before

    @pytest.mark.parametrize(("site", "code"), [("london", 0), ("paris", 10)])
    def test_where_another_site_serves_than_expected(
        self, dr_ctl: Shell, installation: Installation, site: str, code: int
    ) -> None:
        assert done(dr_ctl, "fence", "london", "--expect-serving", site).code == code

    def test_a_site_that_is_not_in_the_settings(self, dr_ctl: Shell, installation: Installation) -> None:
        assert done(dr_ctl, "fence", "berlin").code == 2

    def test_without_a_yes(self, dr_ctl: Shell, installation: Installation) -> None:
        assert dr_ctl("fence", "london", "--json").code == 14
        assert installation.changes == []

    def test_a_dry_run_changes_nothing(self, dr_ctl: Shell, installation: Installation) -> None:
        ended = dr_ctl("fence", "london", "--dry-run", "--json")

        [_, _, fence] = ended.document["data"]["plan"]["steps"]
        assert ended.code == 0
        assert [call["operation"] for call in fence["calls"]] == ["stop()"]
        assert installation.changes == []


class TestReceipt:
    @pytest.fixture
    def drained(self, dr_ctl: Shell, installation: Installation) -> Installation:
        for words in (("quiesce", "london"), ("fence", "london"), ("drain", "--to", "paris")):
            assert done(dr_ctl, *words).code == 0
        return installation

    def test_it_stands_at_the_target(self, drained: Installation) -> None:
        told = drained.paris.document("dr-ctl.receipt.paris")

        assert told is not None
        assert (told["source"], told["target"], sorted(told["marks"])) == ("london", "paris", ["london", "paris"])
        assert drained.london.document("dr-ctl.receipt.london") is None

    @pytest.mark.parametrize("site", ["london", "paris"])
    def test_what_moved_since_is_refused(self, dr_ctl: Shell, drained: Installation, site: str) -> None:
        getattr(drained, site).broker.queues["orders.in"].counters.added += 1

        ended = done(dr_ctl, "activate", "paris")

        assert (ended.code, ended.ids[0]) == (10, "DR-RECEIPT-001")
        assert f"{site}/orders-1 has a queue whose counters moved since the receipt of " in ended.document["summary"]
        assert doors(drained) == [False, False]

    def test_a_receipt_that_cannot_be_read_fits_nothing(self, dr_ctl: Shell, drained: Installation) -> None:
        receipt = drained.paris.broker.queues["dr-ctl.receipt.paris"]
        assert receipt.user is not None
        receipt.user = receipt.user[:-20]

        assert done(dr_ctl, "activate", "paris").ids[0] == "DR-RECEIPT-001"

    def test_without_one_the_outflows_must_be_read_as_empty(self, dr_ctl: Shell, installation: Installation) -> None:
        done(dr_ctl, "fence", "london")
        installation.london.holds_back(7)

        refused = done(dr_ctl, "activate", "paris")
        installation.twin.heal()
        installation.even()
        opened = done(dr_ctl, "activate", "paris")

        assert (refused.code, refused.ids[0]) == (10, "DR-RECEIPT-002")
        assert "7 to ship at london" in refused.document["summary"]
        assert opened.code == 0

    def test_an_unfence_takes_it_away(self, dr_ctl: Shell, drained: Installation) -> None:
        assert done(dr_ctl, "unfence", "london").code == 0
        assert drained.paris.document("dr-ctl.receipt.paris") is None

    def test_an_unfence_is_refused_while_the_other_holds_something(self, dr_ctl: Shell, drained: Installation) -> None:
        drained.paris.holds_back(4)

        ended = done(dr_ctl, "unfence", "london")

        assert (ended.code, ended.ids[0]) == (10, "DR-UNFENCE-001")


class TestWhatIsUnderWay:
    def test_acknowledgements_that_are_not_applied_keep_a_site_shut(
        self, dr_ctl: Shell, installation: Installation
    ) -> None:
        done(dr_ctl, "fence", "london")
        installation.london.says("PendingMirrorAcks", 9)

        ended = done(dr_ctl, "unfence", "london")

        assert (ended.code, ended.ids[0]) == (10, "DR-UNFENCE-001")
        assert doors(installation) == [False, False]

    def test_pauses_that_a_run_left_at_a_closed_site_are_lifted_without_opening_it(
        self, dr_ctl: Shell, installation: Installation
    ) -> None:
        for words in (("quiesce", "london"), ("fence", "london"), ("activate", "paris")):
            assert done(dr_ctl, *words).code == 0
        left = paused(installation)

        ended = done(dr_ctl, "unfence", "london")

        assert left == [2, 0]
        assert (ended.code, paused(installation), doors(installation)) == (0, [0, 0], [False, True])


class TestFailing:
    def test_a_fence_that_does_not_close_is_undone(
        self, dr_ctl: Shell, installation: Installation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = installation.settable
        installation.london.instead["stop"] = NOT_NOW

        ended = done(dr_ctl, "fence", "london")

        assert (ended.code, ended.document["outcome"]) == (20, "reverted")
        assert installation.settable == before

    def test_a_drain_that_takes_too_long_ends_24_with_nothing_undone(
        self, dr_ctl: Shell, installation: Installation
    ) -> None:
        done(dr_ctl, "fence", "london")
        installation.london.holds_back(7)

        ended = done(dr_ctl, "drain", "--to", "paris", "--timeout", "50ms")

        assert (ended.code, ended.document["outcome"]) == (24, "drain_timeout")
        assert "nothing was undone" in ended.document["summary"]
        assert "undone" not in ended.document["data"]
        assert doors(installation) == [False, False]
        assert installation.paris.document("dr-ctl.receipt.paris") is None

    def test_an_unfence_that_does_not_open_leaves_it_closed(self, dr_ctl: Shell, installation: Installation) -> None:
        done(dr_ctl, "fence", "london")
        installation.london.instead["start"] = NOT_NOW

        ended = done(dr_ctl, "unfence", "london")

        assert (ended.code, doors(installation)) == (20, [False, False])
        assert "no site serves, as before" in ended.document["summary"]


class TestVerify:
    def verify(self, dr_ctl: Shell, *words: str) -> Ended:
        return dr_ctl("verify", "--to", "paris", "--timeout", "200ms", *words, "--json")

    def test_a_site_that_lets_clients_in_keeps_the_gate_shut(self, dr_ctl: Shell, installation: Installation) -> None:
        ended = self.verify(dr_ctl)

        assert (ended.code, ended.ids) == (10, ["DR-VERIFY-001"])
        assert not (dr_ctl.state / "runs").exists()

    def test_it_holds_after_a_drain_and_makes_no_run(self, dr_ctl: Shell, installation: Installation) -> None:
        done(dr_ctl, "fence", "london")
        runs = len(list((dr_ctl.state / "runs").iterdir()))

        ended = self.verify(dr_ctl)

        assert ended.code == 0, ended.document
        assert ended.document["data"]["gate"]["orders-1"]["depths"] == {"orders.in": 3}
        assert len(list((dr_ctl.state / "runs").iterdir())) == runs

    def test_it_says_what_keeps_it_shut(self, dr_ctl: Shell, installation: Installation) -> None:
        done(dr_ctl, "fence", "london")
        installation.london.holds_back(7)

        ended = self.verify(dr_ctl)

        assert ended.code == 10
        assert "london: 7 to ship" in ended.document["summary"]

    def test_a_site_that_does_not_answer_leaves_it_unknown(self, dr_ctl: Shell, nobody: str) -> None:
        ended = self.verify(dr_ctl)

        assert (ended.code, ended.document["outcome"]) == (22, "unknown")


class TestSavedPlan:
    @pytest.fixture
    def saved(self, dr_ctl: Shell, installation: Installation) -> Installation:
        assert dr_ctl("plan", "swapover", "--to", "paris", "--out", "plan.json").code == 0
        return installation

    def run(self, dr_ctl: Shell, *words: str) -> Ended:
        return done(dr_ctl, "swapover", "--to", "paris", "--plan", "plan.json", *words)

    def test_it_is_carried_out_although_counters_moved(self, dr_ctl: Shell, saved: Installation) -> None:
        saved.london.put("orders.in", 6)
        saved.even()

        assert self.run(dr_ctl).code == 0

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda pair: pair.london.queue("orders.new"), "queues now with orders.new"),
            (lambda pair: pair.paris.broker.queues.pop("orders.audit"), "queues now without orders.audit"),
            (lambda pair: pair.london.says("Version", "2.57.0"), "version was 2.56.0, is 2.57.0"),
            (
                lambda pair: pair.london.broker.acceptors.update(
                    extra=replace(pair.london.broker.acceptors["mirror"], name="extra", port=1)
                ),
                "acceptors extra was",
            ),
            (lambda pair: pair.twin.pause("london", "orders.in"), "paused now with orders.in"),
        ],
        ids=["a new queue", "a queue that is gone", "another version", "another door", "a pause"],
    )
    def test_it_is_refused_where_what_it_rests_on_has_changed(
        self, dr_ctl: Shell, saved: Installation, change: object, says: str
    ) -> None:
        change(saved)  # type: ignore[operator]

        ended = self.run(dr_ctl)

        assert ended.code == 10, ended.document
        assert any(each["id"] == "DR-PLAN-001" and says in each["text"] for each in ended.document["findings"]), (
            ended.out
        )
        assert saved.changes == []

    def test_where_the_service_has_moved_there_is_nothing_to_do(self, dr_ctl: Shell, saved: Installation) -> None:
        assert self.run(dr_ctl).code == 0
        assert self.run(dr_ctl).document["run"] is None

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("no json", ()),
            ("{}", ()),
            (None, ("--timeout", "3s")),
            (None, ("--cut-in-flight",)),
        ],
    )
    def test_what_is_no_plan_or_not_this_one_is_a_usage_error(
        self, dr_ctl: Shell, saved: Installation, text: str | None, words: tuple[str, ...]
    ) -> None:
        if text is not None:
            (dr_ctl.folder / "plan.json").write_text(text, encoding="utf-8")

        assert self.run(dr_ctl, *words).code == 2
        assert saved.changes == []

    def test_a_plan_for_another_target_is_refused(self, dr_ctl: Shell, saved: Installation) -> None:
        told = json.loads((dr_ctl.folder / "plan.json").read_text(encoding="utf-8"))
        told["ask"]["target"] = "london"
        (dr_ctl.folder / "plan.json").write_text(json.dumps(told), encoding="utf-8")

        assert self.run(dr_ctl).code == 2


class TestNothingToVerify:
    def test_after_a_move_there_is_nothing_to_verify(self, dr_ctl: Shell, installation: Installation) -> None:
        done(dr_ctl, "swapover", "--to", "paris")

        ended = dr_ctl("verify", "--to", "paris", "--json")

        assert (ended.code, ended.document["summary"]) == (0, "paris serves; there is nothing to verify")

    def test_before_one_it_is_shut_and_nobody_is_told_to_fence(self, dr_ctl: Shell, installation: Installation) -> None:
        ended = dr_ctl("verify", "--to", "paris", "--json")

        [finding] = ended.document["findings"]
        assert (ended.code, finding["id"]) == (10, "DR-VERIFY-001")
        assert "A swapover does this by itself" in finding["remedy"]
        assert "fence" not in finding["remedy"]

    def test_a_link_that_is_not_attached_comes_first(self, dr_ctl: Shell, installation: Installation) -> None:
        installation.twin.cut("london")
        until(lambda: not installation.london.broker.attached)

        remedy = dr_ctl("verify", "--to", "paris", "--json").document["findings"][0]["remedy"]

        assert remedy.startswith("The link of london first: `dr-ctl link restart london`")
