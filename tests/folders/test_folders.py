"""A topology that exists in these tests only: every command works on it, with nothing written for it elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from dr_ctl.engine.entries import read
from dr_ctl.engine.journal import Journal
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.settings.topologies import TOPOLOGIES as SETTINGS
from dr_ctl.topologies.registry import TOPOLOGIES
from tests.broker.driving import Ended
from tests.folders.broker import FolderBroker, made

Command = Callable[..., Ended]
QUEUES = ("orders", "bills")


class Killed(BaseException):
    """The process ends here, as by SIGKILL."""


class Sites:
    """London serves, with two messages that clients have sent; Paris waits."""

    def __init__(self, folder: Path) -> None:
        self.london = made(folder / "london", "london", "orders-1", QUEUES, serving=True)
        self.paris = made(folder / "paris", "paris", "orders-1", QUEUES, serving=False)
        brokers = {site: {"brokers": [{"name": "orders-1", "folder": site}]} for site in ("london", "paris")}
        told = {"version": 1, "name": "orders", "topology": "folders", "sites": brokers}
        (folder / "dr-ctl.yaml").write_text(yaml.safe_dump(told), encoding="utf-8")
        self.london.send("orders", "one")
        self.london.send("bills", "two")

    @property
    def serving(self) -> list[str]:
        return [each.site for each in (self.london, self.paris) if any((each.folder / "doors").iterdir())]

    def messages(self, broker: FolderBroker) -> list[str]:
        return sorted(line for queue in QUEUES for line in broker.lines(f"queues/{queue}"))

    def settable(self, broker: FolderBroker) -> list[str]:
        paths = broker.folder.rglob("*")
        return sorted(str(path.relative_to(broker.folder)) for path in paths if path.name != "alive")


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sites]:
    monkeypatch.setitem(SETTINGS.modules, "folders", "tests.folders.settings")
    monkeypatch.setitem(TOPOLOGIES.modules, "folders", "tests.folders.topology")
    monkeypatch.setenv("DR_CTL_CONFIG", str(tmp_path / "dr-ctl.yaml"))
    return Sites(tmp_path)


def test_status_and_validate_say_what_is(sites: Sites, inside: Command) -> None:
    status, validate = inside("status"), inside("validate")

    assert (status.code, status.document["summary"]) == (0, "london serves")
    assert status.document["data"]["sites"] == {"london": {"role": "serving"}, "paris": {"role": "standby"}}
    assert validate.code == 0, validate.told
    # The lock is per machine, and where no monitor has looked no price is known.
    assert [each["id"] for each in validate.document["findings"]] == [*["DR-LOCK-001"] * 2, "DR-LOSS-001", "DR-MON-002"]


def test_a_swapover_moves_the_service_and_every_message(sites: Sites, inside: Command) -> None:
    dry = inside("swapover", "--to", "paris", "--dry-run")
    moved, again = inside("swapover", "--to", "paris", "--yes"), inside("swapover", "--to", "paris", "--yes")

    assert dry.code == 0
    assert (moved.code, again.code, sites.serving) == (0, 0, ["paris"]), moved.told
    assert sites.messages(sites.paris) == sites.messages(sites.london) == ["one", "two"]
    assert not list((sites.london.folder / "paused").iterdir()), "what quiesce paused is lifted"
    report = inside("runs", "report")
    assert (report.code, inside("runs", "verify").code) == (0, 0)
    assert Path(report.document["data"]["report"]).exists()


def test_the_plan_of_a_disaster_is_told_of_any_topology(sites: Sites, inside: Command) -> None:
    planned = inside("plan", "failover", "--to", "paris", "--as-if-lost", "london")

    assert planned.code == 0, planned.document
    assert planned.document["data"]["plan"]["as_if_lost"] == "london"


def test_a_cut_link_ends_the_drain_and_all_is_as_it_was(sites: Sites, inside: Command) -> None:
    inside("status")  # which ships what lies there
    sites.london.file("cut").touch()
    sites.london.send("orders", "three")
    before = sites.settable(sites.london)

    ended = inside("swapover", "--to", "paris", "--yes", "--timeout", "1s")

    assert ended.code in (10, 24), ended.told
    assert (sites.serving, sites.settable(sites.london)) == (["london"], before)


def test_a_lost_site_is_replaced_and_taken_in_again(sites: Sites, inside: Command) -> None:
    inside("status")
    sites.london.file("cut").touch()
    sites.london.send("orders", "three")
    sites.london.file("alive").unlink()

    refused = inside("failover", "--to", "paris", "--yes")
    served = inside("failover", "--to", "paris", "--yes", "--accept-loss", "unknown")
    sites.paris.send("bills", "four")
    for queue in QUEUES:
        sites.london.file(f"doors/{queue}").unlink()
    sites.london.file("cut").unlink()
    sites.london.file("alive").touch()
    status = inside("status")
    returned = inside("failback", "--to", "london", "--yes")

    assert (refused.code, served.code) == (11, 0), served.told
    assert {(debt["kind"], debt["site"]) for debt in status.document["debts"]} == {
        ("fence", "london"),
        ("quarantine", "london"),
    }
    assert (returned.code, returned.document["debts"], sites.serving) == (0, [], ["london"]), returned.told
    assert sites.messages(sites.london) == sites.messages(sites.paris) == ["four", "one", "three", "two"]


ORDERS = ("--queues", "orders")


def test_a_part_of_a_site_moves_there_and_back_and_the_rest_is_left_alone(
    sites: Sites, inside: Command, tmp_path: Path
) -> None:
    london, paris = sites.settable(sites.london), sites.settable(sites.paris)

    there = ("swapover", "--to", "paris", *ORDERS, "--yes")
    planned = inside(*there, "--dry-run")
    moved, again = inside(*there), inside(*there)
    between = inside("status")
    back = inside("swapover", "--to", "london", *ORDERS, "--yes")

    assert (moved.code, again.code, back.code) == (0, 0, 0), (moved.told, again.told, back.told)
    assert again.document["summary"] == "paris serves orders already; nothing was changed"
    assert planned.document["summary"].startswith("swapover of orders from london to paris")
    assert planned.document["data"]["plan"]["untouched"] == ["bills"]
    assert between.document["data"]["pairs"] == [
        {"name": "bills", "serving": "london"},
        {"name": "orders", "serving": "paris"},
    ]
    assert (sites.settable(sites.london), sites.settable(sites.paris)) == (london, paris)
    entries = [entry for path in tmp_path.rglob("journal.jsonl") for entry in read(path)]
    assert {entry.call["pair"] for entry in entries if entry.kind == "intent" and entry.call} == {"orders"}


def test_a_part_that_cannot_be_drained_is_as_it_was(sites: Sites, inside: Command) -> None:
    inside("status")
    sites.london.file("cut").touch()
    sites.london.send("orders", "three")
    before = sites.settable(sites.london)

    ended = inside("swapover", "--to", "paris", *ORDERS, "--yes", "--timeout", "1s")

    assert ended.code in (10, 24), ended.told
    assert sites.settable(sites.london) == before


def test_a_part_that_no_site_has_is_refused(sites: Sites, inside: Command) -> None:
    refused = inside("swapover", "--to", "paris", "--queues", "payments", "--yes")

    assert (refused.code, [each["id"] for each in refused.document["findings"]]) == (10, ["DR-UNIT-001"])
    assert "payments" in refused.told


def test_of_a_service_whose_parts_are_at_both_sites_the_rest_moves(sites: Sites, inside: Command) -> None:
    inside("swapover", "--to", "paris", *ORDERS, "--yes")

    rest = inside("swapover", "--to", "paris", "--yes")

    assert (rest.code, sites.serving) == (0, ["paris"]), rest.told


@pytest.mark.parametrize("named", [(), ORDERS])
@pytest.mark.parametrize("number", range(1, 6))
def test_a_killed_run_is_gone_on_with(
    sites: Sites, inside: Command, monkeypatch: pytest.MonkeyPatch, number: int, named: tuple[str, ...]
) -> None:
    """Killed right after the so manyeth line of intents: what was to be sent then was not."""
    intents, count = Journal.intents, [0]

    def killing(self: Journal, *given: object) -> object:
        told = intents(self, *given)  # type: ignore[arg-type]
        count[0] += 1
        if count[0] == number:
            raise Killed
        return told

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "intents", killing)
        with suppress(Killed):
            inside("swapover", "--to", "paris", *named, "--yes")
    resumed = inside("resume", "--yes")

    assert resumed.code == (0 if count[0] >= number else 10), resumed.told
    assert [path.name for path in sorted((sites.paris.folder / "doors").iterdir())] == (
        ["orders"] if named else sorted(QUEUES)
    )
    assert sites.serving == (["london", "paris"] if named else ["paris"])
    assert sites.messages(sites.paris) == ["one", "two"]


def test_a_run_of_a_part_that_cannot_drain_is_escalated_for_that_part(
    sites: Sites, inside: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link is cut right behind the fence, and the process ends while it waits for what is left."""
    intents = Journal.intents

    def cutting(self: Journal, step: PlannedStep, calls: Sequence[Call]) -> list[int]:
        if step.verb == "fence":
            sites.london.file("cut").touch()
            sites.london.add("outflow", "orders three")
        return intents(self, step, calls)

    def killing(self: Journal, step: PlannedStep, evidence: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "intents", cutting)
        patch.setattr(Journal, "sample", killing)
        with suppress(Killed):
            inside("swapover", "--to", "paris", *ORDERS, "--yes")
    ended = inside("escalate", "--yes", "--accept-loss", "unknown", "--reason", "it cannot drain")

    assert ended.code == 0, ended.told
    assert [path.name for path in (sites.paris.folder / "doors").iterdir()] == ["orders"]
    assert [path.name for path in (sites.london.folder / "doors").iterdir()] == ["bills"]
