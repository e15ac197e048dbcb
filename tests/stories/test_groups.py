"""A service under load at brokers of two nodes, on twins and on real ones: a node dies in the middle of a step, and
a failover is typed while the other one may take over. The ledger of the clients judges."""

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path

import pytest

from dr_ctl.core.system import in_background, system
from dr_ctl.settings.loader import load
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, FANOUT, MIRROR
from dr_ctl_lab.twin.nodes import Layout
from tests.broker.driving import Ended, Operator, Stage, until
from tests.stories.test_story import ONE_FLOW, RATE, WITH_AGENT, Agents, clients, more
from tests.topologies.continuity.plugin import needs_plugin
from tests.twin.matrix import ACCEPTED

STEPS = ("quiesce", "fence", "drain")  # the active node of the site that serves dies in each
REAL = (pytest.mark.broker, pytest.mark.deep)
STAGES = [pytest.param((MIRROR, False), id="twin"), pytest.param((MIRROR, True), id="brokers", marks=REAL)]
MOVED = [
    *STAGES,
    *(pytest.param((case, True), id=case, marks=REAL) for case in (BRIDGES, BROKERSYNC, FANOUT)),
    pytest.param((CONTINUITY, True), id=CONTINUITY, marks=(*REAL, needs_plugin)),
]


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest, tmp_path: Path, system_of_test: None) -> Iterator[Stage]:
    del system_of_test
    topology, is_real = request.param
    if is_real:
        queues = {"queues": ("orders.in",)} if topology in ONE_FLOW else {}
        with Lab.up(tmp_path / "stage", topology=topology, nodes=2, **queues) as lab:
            yield lab
    else:
        with PlayedTwin.up(tmp_path / "stage", topology=topology, layout=Layout(nodes=2)) as twin:
            yield twin


def active(stage: Stage, site: str) -> str | None:
    return next((item.node for item in stage.status().sites if item.name == site and item.active), None)


def whole(stage: Stage, site: str, operator: Operator, *, serving: str | None, node: str = "a") -> None:
    """The node is back: a primary is active again, a Classic slave waits. Where clients are kept out, each takeover has
    opened the listener. Of what was consumed right before, counters that ended prove nothing to the agent."""
    stage.start(site, node=node)
    topology = load(stage.settings_path).settings.topology
    until(lambda: active(stage, site) if topology.startswith("classic-") else active(stage, site) == node)
    if topology in WITH_AGENT:
        operator.run("sync", "--go-on")
    if topology == CONTINUITY:  # the plugin has closed it; a message may have lost its copy
        assert serving not in (site, None) or operator.run("activate", site, "--yes").code == 0
    elif serving not in (site, None):
        operator.run("fence", site, "--yes")
    until(lambda: ready(operator), why="nothing stands against a move")


def brought(operator: Operator, target: str) -> bool:
    return ready(operator) and operator.run("swapover", "--to", target, "--yes").code == 0


def ready(operator: Operator) -> bool:
    """The word is given for what the agent finds once it has compared both sites, and again for what it doubts since:
    the counters of a busy machine are read while acknowledgements are written. What moves between two readings may hide
    from a verdict what it has not removed yet."""
    done = operator.run("validate", "--for", "swapover")
    if "DR-AGENT-007" in done.ids:
        operator.run("sync", "--go-on")
    return done.code == 0 and "DR-AGENT-007" not in done.ids


def moved(stage: Stage, operator: Operator, step: str, site: str, target: str, node: str) -> Ended:
    """Move the service; that node of a site dies once that step has begun."""
    runs, over = operator.state / "runs", system().event()
    before = len([*runs.glob("*")])

    def watch() -> None:
        while not over.wait(0.005):
            begun = operator.journal() if len([*runs.glob("*/journal.jsonl")]) > before else []
            if any(entry["kind"] == "step" and entry["step"].endswith(step) for entry in begun):
                stage.kill(site, node=node)
                return

    watching = in_background(watch, "who kills a node")
    ended = operator.run("swapover", "--to", target, "--yes")
    over.set()
    watching.result()
    return ended


def served(stage: Stage) -> list[str]:
    """The sites at which sends were confirmed, one after the other."""
    [ledger] = stage.ledgers.glob("*.jsonl")
    sent = [row for row in map(json.loads, ledger.read_text().splitlines()) if row["event"] == "sent"]
    return [site for site, _ in groupby(row["site"] for row in sorted(sent, key=lambda row: row["at_s"]))]


@pytest.mark.deep
@pytest.mark.parametrize("stage", MOVED, indirect=True)
def test_a_node_dies_in_the_middle_of_a_step_of_a_move(stage: Stage, operator: Operator) -> None:
    """Beside BrokerSync the agent runs on over each takeover: what was consumed before is not left to the other
    site."""
    topology = load(stage.settings_path).settings.topology
    beside = Agents(operator) if topology in WITH_AGENT else nullcontext()
    options = clients(stage, topology)
    if topology == CONTINUITY:  # what has lost its copy is consumed before the next move, messages of MQTT last of all
        options["work_ms"] = 1.0
    places, ends = ["london", "paris"], []
    with beside, stage.load(RATE, **options) as traffic:
        for step in STEPS:
            more(traffic)
            site, node = places[0], active(stage, places[0]) or ""
            ends.append(moved(stage, operator, step, site, places[1], node))
            if serving := ends[-1].document["data"]["pairs"][0]["serving"]:
                more(traffic)
            whole(stage, site, operator, serving=serving, node=node)
            until(lambda: brought(operator, places[1]), why=f"{places[1]} serves")
            places.reverse()
        more(traffic)
        verdict = traffic.stop(drain_s=60)
    print([(end.code, end.document["summary"]) for end in ends])

    closed = {23} if topology == CONTINUITY else set()  # by the takeover, before the run had changed anything
    assert {end.code for end in ends} <= {0, 10, 20, 24} | closed, [end.document["summary"] for end in ends]
    assert (verdict.lost, verdict.duplicates, verdict.drained) == ((), (), True)
    # Producers that write to both sites send to each of them all the time.
    assert topology == FANOUT or served(stage) == [("london", "paris")[number % 2] for number in range(len(ends) + 1)]


def closed_at_boot(xml: str) -> str:
    return re.sub(r'(name="clients">[^<]*)', r"\1;autoStart=false", xml)


@pytest.mark.broker
@pytest.mark.deep
@pytest.mark.parametrize("topology", [MIRROR, BRIDGES])
def test_a_target_whose_listeners_are_closed_at_boot_is_opened_again(tmp_path: Path, topology: str) -> None:
    """Its node dies behind the activation, with clients at work there again."""
    with Lab.up(tmp_path / "stage", topology=topology, nodes=2, edit=closed_at_boot) as lab:
        operator = Operator(lab, tmp_path / "state")
        with lab.load(RATE, **clients(lab, topology)) as traffic:
            more(traffic)
            ended = moved(lab, operator, "probe", "paris", "paris", "a")
            more(traffic)
            node, verdict = active(lab, "paris"), traffic.stop(drain_s=60)
    print(ended.told, verdict)

    assert (ended.code, node) == (0, "b"), ended.told
    [out_again_s] = re.findall(r"up to (.*) s, and are open again", ended.finding("DR-NODE-007")["text"])
    assert ended.document["data"]["outage_s"] > float(out_again_s)
    assert (verdict.lost, verdict.duplicates, verdict.drained) == ((), (), True)


@pytest.mark.broker
@pytest.mark.deep
def test_an_abort_at_another_node_than_that_of_the_journal_opens_the_source(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "stage", nodes=2) as lab:
        operator = Operator(lab, tmp_path / "state")
        operator.run("status")
        process = operator.start("swapover", "--to", "paris", "--yes")
        runs = operator.state / "runs"
        until(
            lambda: any('"kind":"result"' in path.read_text() for path in runs.glob("*/journal.jsonl")), every_s=0.002
        )
        process.kill()
        process.wait()
        lab.kill("london", node="a")
        until(lambda: active(lab, "london") == "b")
        aborted, status = operator.run("abort", "--yes"), operator.run("status")

    assert (aborted.code, status.document["summary"]) == (0, "london serves"), aborted.told


def test_a_failover_typed_while_a_node_may_take_over_opens_nothing(stage: Stage, operator: Operator) -> None:
    with stage.load(RATE) as traffic:
        for seconds in (0, 5, 30):
            more(traffic)
            stage.kill("london", node="a")
            system().sleep(seconds)
            refused = operator.run("failover", "--to", "paris", "--yes", *ACCEPTED)
            assert refused.code == 12, refused.told
            more(traffic)
            whole(stage, "london", operator, serving="london")
        verdict = traffic.stop(drain_s=60)

    assert (verdict.lost, verdict.duplicates) == ((), ())
    assert served(stage) == ["london"]


@pytest.mark.deep
def test_what_a_lost_site_holds_stays_out_over_a_takeover(stage: Stage, operator: Operator) -> None:
    """Both nodes of a site die; another node of the one that takes over opens the acceptor of the link."""
    with stage.load(RATE) as traffic:
        more(traffic)
        stage.kill("london")
        operator.run("status")
        system().sleep(95)
        lost = operator.run("failover", "--to", "paris", "--yes", *ACCEPTED)
        more(traffic)
        stage.kill("paris", node="a")
        until(lambda: active(stage, "paris") == "b")
        more(traffic)
        stage.start("london")
        until(lambda: active(stage, "london"))
        system().sleep(3)
        links = {link.source: link.connected for link in stage.status().links}
        status, back = operator.run("status"), operator.run("reinstate", "london", "--yes")
        more(traffic)
        after, verdict = operator.run("status"), traffic.stop(drain_s=60)

    assert (lost.code, links["london"], links["paris"]) == (0, False, True), lost.told
    assert "DR-RETURN-004" not in status.ids
    assert "or a takeover there, does not end that" in status.document["debts"][-1]["text"]
    assert (back.code, after.document["summary"], after.document["debts"]) == (0, "paris serves", []), back.told
    assert verdict.lost == ()
