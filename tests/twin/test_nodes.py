"""Brokers with several nodes. Of some the settings name one node: nothing opens a second site, and no remedy leads
there. Of others another node becomes active in the middle of a run, or a message comes, so that what the gate had seen
holds no more: no end is unclear, and one site serves.
Where the named node is dead, another one may serve, or be about to."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dr_ctl.core.system import system
from dr_ctl.engine.executor import Execution
from dr_ctl.engine.plan import Goal, PlannedStep
from dr_ctl.engine.ports import Failed, Outcome
from dr_ctl.topologies.common.gate import Gate
from dr_ctl.topologies.common.tools import Sender
from dr_ctl.topologies.common.topology import PairDriver
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.artemis.broker import ArtemisBroker
from dr_ctl_lab.twin.bridges.broker import BridgesBroker
from dr_ctl_lab.twin.classic.broker import ClassicBroker
from dr_ctl_lab.twin.faults import Fault, FaultKind, Trigger
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, FANOUT, KINDS, MIRROR, SHARED_STORE
from dr_ctl_lab.twin.nodes import Layout
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.scenarios.oddities import look_for_two
from tests.twin.conftest import at_night
from tests.twin.matrix import ACCEPTED, Death, Died, done, edited, put, serving, take
from tests.twin.subject import until

NODES, ALIVE = "DR-NODE-001", "DR-ALIVE-001"
NEW = (MIRROR, BRIDGES)
FAILOVER = ("failover", "--to", "paris", "--yes", *ACCEPTED)
WORD = ("--presume-down", "london", "--reason", "its hosts are off")


def node(twin: PlayedTwin, site: str = "london") -> ArtemisBroker:
    return next(broker for broker in twin.brokers(ArtemisBroker) if broker.site == site)


def name_one(twin: PlayedTwin, **nodes: str) -> None:
    """Let the settings of each site name that node alone."""
    with edited(twin) as document:
        for site, node in nodes.items():
            [broker] = document["sites"][site]["brokers"]
            [only] = [row for row in broker.pop("nodes") if row["name"] == node]
            for key in ("takeover", "cluster"):
                broker.pop(key)
            broker |= {key: only[key] for key in ("jolokia", "stomp")}


@pytest.mark.parametrize(
    ("topology", "layout"),
    [*((topology, Layout(nodes=2)) for topology in NEW), (BROKERSYNC, Layout()), (FANOUT, Layout())],
)
def test_a_passive_node_is_not_taken_for_the_broker(twin: PlayedTwin, dr_ctl: Command, topology: str) -> None:
    """The settings name it, while another one is active."""
    if isinstance(twin.host("london").broker, ClassicBroker):
        twin.host("london").faults.add(Fault(FaultKind.WRONG_VALUE, Trigger(), None, attribute="Slave", value=True))
    else:
        name_one(twin, london="b", paris="a")

    status, looked = dr_ctl("status"), dr_ctl("validate", "--for", "failover")
    refused, worded = dr_ctl(*FAILOVER), dr_ctl(*FAILOVER, *WORD)

    assert status.document["data"]["sites"]["london"]["role"] == "unknown"
    assert {link["from"] for link in status.document["data"]["links"]} == {"paris"}
    assert "there is passive" in status.texts("DR-SITE-002")[0]
    assert ("(by its listing of the cluster)" in str(status.texts(NODES))) is (topology in NEW)
    for ended in (refused, worded):
        assert ended.code == 12, ended.document
        assert "there is passive" in ended.texts(ALIVE)[0]
        assert "add --presume-down" not in str(ended.document)
    assert "refused while london may serve" in looked.document["summary"]
    assert serving(twin) == ("london",)


@pytest.mark.parametrize("layout", [Layout(nodes=2)])
@pytest.mark.parametrize("topology", NEW)
def test_a_passive_node_of_the_target_is_told_as_the_one_cause(twin: PlayedTwin, dr_ctl: Command) -> None:
    """It has no acceptor, no link and no queue, and nothing of that is to be fixed."""
    name_one(twin, london="a", paris="b")

    looked, refused = dr_ctl("validate", "--for", "swapover"), dr_ctl("swapover", "--to", "paris", "--yes")

    assert (looked.code, refused.code, serving(twin)) == (22, 10, ("london",)), refused.document
    for ended in (looked, refused):
        assert "there is passive" in str(ended.document)
        assert not [finding for finding in ended.document["findings"] if finding["id"][:7] in ("DR-DOOR", "DR-LINK")]


@pytest.mark.parametrize(("topology", "layout"), [(MIRROR, Layout(nodes=2))])
def test_acknowledgements_that_a_passive_node_still_counts_are_told(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.host("paris", node="b").pending_acks = 30

    [finding] = dr_ctl("validate", "--for", "swapover").rows("DR-NODE-006")

    assert finding["text"].startswith("paris/orders-1: node b is passive, and still counts 30 acknowledgement(s)")


@pytest.mark.parametrize("layout", [Layout(nodes=2)])
@pytest.mark.parametrize(("topology", "how"), [(MIRROR, "URI, behind `#`"), (BRIDGES, "in `static-connectors`")])
def test_a_link_that_looks_for_one_node_of_its_peer_is_told(twin: PlayedTwin, dr_ctl: Command, how: str) -> None:
    broker = twin.host("paris").broker
    if isinstance(broker, BridgesBroker):
        for bridge in broker.bridges.values():
            bridge.config = {**bridge.config, "static-connectors": bridge.config["static-connectors"][:1]}
    else:
        node(twin, "paris").link.alternates = ()

    [finding] = dr_ctl("validate", "--for", "swapover").rows("DR-NODE-006")

    assert finding["text"] == "london/orders-1 has several nodes, and the link of paris knows only one of them"
    assert how in finding["remedy"]


@pytest.mark.parametrize("layout", [Layout(nodes=2, takeover_s=2.0, gap_s=8.0)])
@pytest.mark.parametrize("topology", [MIRROR, *at_night(BRIDGES)])
def test_while_a_broker_fails_back_inside_its_site_nothing_is_opened_elsewhere(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    """Both nodes answer that they are passive, and every listener refuses, for seconds."""
    twin.kill("london", node="a")
    until(lambda: nodes(dr_ctl("status"))["b"] == "active")
    twin.start("london", node="a")

    items, checked = dr_ctl("status"), dr_ctl("check")
    refused, worded = dr_ctl(*FAILOVER), dr_ctl("swapover", "--to", "paris", "--yes")

    assert set(nodes(items).values()) <= {"passive", "refuses"}, nodes(items)
    assert items.document["data"]["sites"]["london"]["role"] == "unknown"
    assert "no node of london/orders-1 is active" in checked.document["summary"]
    assert refused.code == 12, refused.document
    assert "another one may be" in refused.document["summary"] or "a passive one may be" in refused.document["summary"]
    assert (worded.code, serving(twin)) == (10, ()), worded.document
    until(lambda: nodes(dr_ctl("status"))["a"] == "active")
    done(dr_ctl("swapover", "--to", "paris", "--yes"))
    assert serving(twin) == ("paris",)


def test_a_node_that_takes_over_while_the_failover_runs_keeps_the_other_site_closed(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word was given, and then the link was attached after all."""
    look_for_two(twin.host("paris").broker)
    twin.kill("london")
    broker = node(twin, "paris")
    create = broker.create_queue

    def created(options: Any, **more: Any) -> Any:
        if str(options.get("name")).startswith("dr-ctl.debt.paris.quarantine"):
            broker.group.listener = ""
            monkeypatch.setattr(
                "dr_ctl.topologies.mirror.view.MirrorLink.hears_peer", property(lambda link: link.view.site == "paris")
            )
        return create(options, **more)

    monkeypatch.setattr(broker, "create_queue", created)
    ended = dr_ctl(*FAILOVER, *WORD)

    assert ended.code == 20, ended.document
    assert "london is alive" in ended.document["summary"]
    assert serving(twin) == ()


GROUPS = (MIRROR, BRIDGES, BROKERSYNC, FANOUT)


def nodes(ended: Ended, site: str = "london") -> dict[str, str]:
    return {item["name"]: item["state"] for item in ended.document["data"]["nodes"][f"{site}/orders-1"]}


@pytest.mark.parametrize("layout", [Layout(nodes=2, takeover_s=2.0)])
@pytest.mark.parametrize("topology", [MIRROR, *at_night(BRIDGES, BROKERSYNC, FANOUT)])
def test_a_failover_is_refused_until_no_node_can_take_over(twin: PlayedTwin, dr_ctl: Command, topology: str) -> None:
    """From the death of the active node on: while another one may take over, while that serves, and after its death."""
    waits = "refuses" if topology in (BROKERSYNC, FANOUT) else "passive"
    assert nodes(dr_ctl("status")) == {"a": "active", "b": waits}
    twin.kill("london", node="a")

    early, priced = dr_ctl(*FAILOVER), dr_ctl("failover", "--to", "paris", "--yes", *WORD)
    result = dr_ctl("status")
    until(lambda: nodes(dr_ctl("status")) == {"a": "refuses", "b": "active"})
    late, worded = dr_ctl(*FAILOVER), dr_ctl(*FAILOVER, *WORD)
    twin.kill("london", node="b")
    refused = dr_ctl(*FAILOVER)
    checked, looked = dr_ctl("check"), dr_ctl("validate", "--for", "failover", "--to", "paris")
    system().sleep(4.1)
    ended = dr_ctl(*FAILOVER)

    assert [case.code for case in (early, late, worded, refused)] == [12] * 4, early.document
    assert result.document["data"]["sites"]["london"]["role"] == "unknown"
    assert priced.code == 11, priced.document
    assert "nothing was changed: london may be about to serve: no node of" in priced.document["summary"]
    assert f"a refuses, b {waits if waits == 'refuses' else f'is {waits}'}; within 4 s" in early.document["summary"]
    assert "a refuses, b refuses; within 4 s another one may be" in refused.document["summary"]
    assert "no node of london/orders-1 is active" in checked.document["summary"]
    assert "--presume-down london" in looked.document["summary"]
    done(ended)
    assert serving(twin) == ("paris",)


@pytest.mark.parametrize("layout", [Layout(nodes=2, replicates=True)])
@pytest.mark.parametrize("topology", [MIRROR])
def test_two_active_nodes_are_a_split_brain_and_a_fence_closes_both(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.split("london")

    status, checked = dr_ctl("status"), dr_ctl("check")
    refused = [dr_ctl("swapover", "--to", "paris", "--yes"), dr_ctl(*FAILOVER, *WORD)]
    fenced = dr_ctl("fence", "london", "--yes")

    assert (status.document["findings"][0]["id"], nodes(status)) == ("DR-NODE-005", {"a": "active", "b": "active"})
    assert "split brain: two nodes of london/orders-1 are active" in status.texts("DR-NODE-005")[0]
    assert checked.document["summary"].startswith("CRITICAL - split brain")
    assert [item.code for item in refused] == [10, 12], refused[0].document
    assert refused[0].rows("DR-NODE-005")
    assert fenced.code == 0, fenced.document
    assert not any(host.acceptors["clients"].started for host in twin.nodes("london").hosts)


@pytest.mark.parametrize("topology", KINDS.modules)
@pytest.mark.parametrize("worse", ["freeze", "sicken", "kill"])
def test_whatever_is_seen_of_a_site_is_told(twin: PlayedTwin, dr_ctl: Command, worse: str) -> None:
    """What a failover would do is said of a site that lives too, and of one whose other node may go on."""
    look_for_two(twin.host("paris").broker)
    getattr(twin, worse)("london")

    for command in (("status",), ("check",), ("validate", "--for", "failover", "--to", "paris")):
        ended = dr_ctl(*command)
        assert ended.document["outcome"] != "internal", ended.err


@pytest.mark.parametrize("layout", [Layout(nodes=2)])
@pytest.mark.parametrize("topology", NEW)
def test_a_node_that_hangs_is_no_node_that_the_settings_do_not_name(twin: PlayedTwin, dr_ctl: Command) -> None:
    """`check` has little time, in which no node of the broker may have answered."""
    twin.freeze("london", node="a")
    assert [dr_ctl("check", "--within", within).rows(NODES) for within in ("1s", "3s")] == [[], []]


Q = "orders.in"
AFTER = "after the last step"
OPENING = ("right before it opens", "right after it opens")
OTHERS = (BRIDGES, BROKERSYNC, FANOUT, CONTINUITY)
BOTH_BOOTS = pytest.mark.parametrize(
    "layout",
    [
        pytest.param(Layout(nodes=2, takeover_s=2.0, boots_open=True), id="boots-True"),
        pytest.param(Layout(nodes=2, takeover_s=2.0, boots_open=False), id="boots-False", marks=pytest.mark.deep),
    ],
)


@pytest.fixture
def in_step(twin: PlayedTwin, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Let the active node of a site die as a step begins, or its undo; right before or after the call that opens the
    target; or after the last step."""

    def arranged(verb: str, site: str, name: str = "apply") -> list[str]:
        owner: type = PairDriver
        if verb == AFTER:
            owner, name = Execution, "_result"
        elif verb in OPENING:
            owner, name = Sender, "_post"
        act, killed = getattr(owner, name), list[str]()

        def die() -> None:
            monkeypatch.undo()
            twin.kill(site, node="a")
            killed.append(site)

        def acted(which: Any, *of: Any, **named: Any) -> Any:
            opens = owner is Sender and any(call.goal is Goal.OPEN for call in of[0])
            if opens or verb in (AFTER, *(step.verb for step in of[:1] if owner is PairDriver)):
                outcome = act(which, *of, **named) if verb == OPENING[1] else None
                die()
                if verb == OPENING[1]:
                    return outcome
            return act(which, *of, **named)

        monkeypatch.setattr(owner, name, acted)
        return killed

    return arranged


def cases() -> Iterator[object]:
    for topology in (MIRROR, *OTHERS):
        for verb in ("quiesce", "fence", "drain", "verify", "activate", *OPENING, "probe", AFTER):
            for site in ("london", "paris"):
                marks = () if topology == MIRROR and verb in ("fence", "activate", AFTER) else (pytest.mark.deep,)
                yield pytest.param(topology, verb, site, marks=marks)


@BOTH_BOOTS
@pytest.mark.parametrize(("topology", "verb", "site"), [*cases()])
def test_a_planned_move_ends_with_one_site_that_serves_and_has_all_messages(
    twin: PlayedTwin, dr_ctl: Command, in_step: Callable[..., list[str]], verb: str, site: str
) -> None:
    """A takeover opens what the fence had closed, or closes what the run had opened, by the node's own settings."""
    put(twin, "london", Q, 20)
    killed = in_step(verb, site)

    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert killed == [site], ended.document
    assert ended.code == 0, ended.document
    assert serving(twin) == ("paris",)
    assert twin.depth("paris", Q) == 20


@pytest.mark.parametrize("topology", [MIRROR, *at_night(BRIDGES, BROKERSYNC, CONTINUITY, SHARED_STORE)])
def test_a_message_that_is_counted_after_the_gate_is_moved_too(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers that write to both sites of a fan-out do so at every moment of a move."""
    act, begun = PairDriver.apply, list[str]()

    def acted(driver: PairDriver[Any], step: PlannedStep, *of: Any) -> Outcome:
        begun.append(step.verb)
        if step.verb == "activate" and begun.count("drain") == 1:
            put(twin, "london", Q, 1)
            twin.wait_mirrored()
        return act(driver, step, *of)

    monkeypatch.setattr(PairDriver, "apply", acted)
    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert (ended.code, serving(twin), twin.depth("paris", Q)) == (0, ("paris",), 1), ended.document
    assert [*begun[-7:]] == ["drain", "verify", "activate", "drain", "verify", "activate", "probe"]


@pytest.mark.parametrize("topology", [MIRROR, *at_night(*OTHERS)])
def test_a_source_that_is_restarted_behind_the_gate_is_moved_from_no_further(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have let clients in: what the gate had seen is not proven again."""
    put(twin, "london", Q, 3)
    verify = Gate.verify

    def verified(gate: Gate[Any], *of: Any) -> Outcome:
        outcome = verify(gate, *of)
        twin.kill("london")
        twin.start("london")
        return outcome

    monkeypatch.setattr(Gate, "verify", verified)
    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert (ended.code, serving(twin)) == (20, ("london",)), ended.document
    assert "restarted" in ended.document["summary"]


@BOTH_BOOTS
@pytest.mark.parametrize("topology", [MIRROR, *at_night(*OTHERS)])
@pytest.mark.parametrize("verb", [*at_night("fence", "quiesce"), AFTER])
def test_a_move_that_is_undone_leaves_the_source_open(
    twin: PlayedTwin, dr_ctl: Command, in_step: Callable[..., list[str]], verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused at its gate; the source's node dies as that step is undone, or after all of them."""
    put(twin, "london", Q, 20)
    act = PairDriver.apply
    killed = in_step(verb, "london", "undo")
    monkeypatch.setattr(
        PairDriver, "apply", lambda driver, step, *of: Failed("no") if step.verb == "verify" else act(driver, step, *of)
    )

    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert (killed, ended.code) == (["london"], 20), ended.document
    assert serving(twin) == ("london",)


@BOTH_BOOTS
@pytest.mark.parametrize("topology", [MIRROR, *at_night(*OTHERS)])
@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize(("way", "served"), [("abort", "london"), ("resume", "paris")])
def test_a_run_that_died_ends_at_another_node_than_that_of_its_journal(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, at: int, way: str, served: str
) -> None:
    put(twin, "london", Q, 20)
    with monkeypatch.context() as dies:
        Death(at, after=True).strike(dies)
        with pytest.raises(Died):
            dr_ctl("swapover", "--to", "paris", "--yes")
    twin.kill("london", node="a")
    until(lambda: any(host.is_active for host in twin.nodes("london").hosts))

    assert (dr_ctl(way, "--yes").code, serving(twin)) == (0, (served,))


@pytest.mark.parametrize("layout", [Layout(nodes=2, takeover_s=2.0, boots_open=True)])
@pytest.mark.parametrize("topology", [MIRROR, *at_night(BROKERSYNC)])
@pytest.mark.parametrize(
    ("ways", "served"),
    [(["resume"], "paris"), (["fence paris", "resume"], "paris"), (["fence paris", "abort"], "london")],
)
def test_where_a_takeover_has_opened_the_target_a_run_is_undone_once_that_is_closed(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, ways: list[str], served: str
) -> None:
    put(twin, "london", Q, 20)
    with monkeypatch.context() as dies:
        Death(2, after=True).strike(dies)
        with pytest.raises(Died):
            dr_ctl("swapover", "--to", "paris", "--yes")
    twin.kill("paris", node="a")
    waits = dr_ctl("status").finding("DR-RUN-003")["remedy"]
    until(lambda: any(host.is_active for host in twin.nodes("paris").hosts))

    refused, codes = dr_ctl("abort", "--yes"), [dr_ctl(*way.split(), "--yes").code for way in ways]

    assert (refused.code, waits) == (10, "`dr-ctl resume`: paris serves; once a node of paris is active (recommended)")
    assert all(f"`dr-ctl {way}`" in refused.finding("DR-RUN-005")["remedy"] for way in ways), refused.document
    assert (codes, serving(twin)) == ([0] * len(ways), (served,))
    assert twin.depth(served, Q) == 20


@pytest.mark.deep
@pytest.mark.parametrize("layout", [Layout(nodes=2, takeover_s=2.0)])
@pytest.mark.parametrize("topology", [CONTINUITY])
def test_the_monitor_opens_a_site_that_the_plugin_keeps_closed_after_a_takeover(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    put(twin, "london", Q, 20)
    rows = dr_ctl("validate", "--to", "paris").rows("DR-CONT-022")
    watched = "monitor", "--for", "8s", "--auto-unfence"
    dr_ctl(*watched)
    twin.kill("london", node="a")
    until(lambda: any(host.is_active for host in twin.nodes("london").hosts))
    closed = dr_ctl("status")
    dr_ctl(*watched)

    assert ["dr-ctl monitor --auto-unfence" in finding["remedy"] for finding in rows] == [True, True]
    assert closed.finding("DR-ROLE-015")["remedy"] == "Reopen london, which served last: `dr-ctl unfence london`."
    assert (serving(twin), twin.depth("london", Q)) == (("london",), 20)


@pytest.mark.deep
@pytest.mark.parametrize("layout", [Layout(nodes=2, takeover_s=2.0)])
@pytest.mark.parametrize("topology", [CONTINUITY])
@pytest.mark.parametrize(("comes_over", "code", "served"), [(True, 20, ("london",)), (False, 23, ())])
def test_a_source_opens_again_only_with_what_clients_of_the_target_did_behind_the_activation(
    twin: PlayedTwin,
    dr_ctl: Command,
    monkeypatch: pytest.MonkeyPatch,
    comes_over: bool,
    code: int,
    served: tuple[str, ...],
) -> None:
    """The takeover deactivates the target, where messages went and came; what they left staged at the source goes in
    once that serves, and then the move is made."""
    put(twin, "london", Q, 20)
    with monkeypatch.context() as dies:
        Death(4, after=True).strike(dies)
        with pytest.raises(Died):
            dr_ctl("swapover", "--to", "paris", "--yes")
    assert serving(twin) == ("paris",)
    if not comes_over:
        twin.cut("paris")
    take(twin, "paris", Q)
    put(twin, "paris", Q, 2)
    twin.kill("paris", node="a")
    until(lambda: any(host.is_active for host in twin.nodes("paris").hosts))

    ended = dr_ctl("resume", "--yes", "--timeout", "3s")

    assert (ended.code, serving(twin)) == (code, served), ended.document
    if comes_over:
        assert twin.depth("london", Q) == 21
        assert (dr_ctl("swapover", "--to", "paris", "--yes").code, twin.depth("paris", Q)) == (0, 21)


@BOTH_BOOTS
@pytest.mark.parametrize("topology", [MIRROR, *at_night(BRIDGES)])
def test_a_step_at_the_site_that_waits_leaves_the_other_one_serving(
    twin: PlayedTwin, dr_ctl: Command, in_step: Callable[..., list[str]]
) -> None:
    killed = in_step("restart-link", "london")

    ended = dr_ctl("link", "restart", "paris", "--yes")

    assert (killed, ended.code, serving(twin)) == (["london"], 0, ("london",)), ended.document


LOST = ("failover", "--to", "paris", "--yes", *ACCEPTED, "--presume-down", "london", "--reason", "its hosts are off")


def lost() -> Iterator[object]:
    steps = [("failover", verb, "paris") for verb in ("quarantine", "settle", "activate", "probe")]
    steps += [("reinstate", verb, site) for verb in ("residue", "reinstate") for site in ("london", "paris")]
    for topology in (MIRROR, BRIDGES, BROKERSYNC, CONTINUITY):
        for case in steps:
            short = topology == MIRROR and case[1] in ("quarantine", "activate", "reinstate")
            yield pytest.param(topology, *case, marks=() if short else (pytest.mark.deep,))


@BOTH_BOOTS
@pytest.mark.parametrize(("topology", "operation", "verb", "site"), [*lost()])
def test_a_failover_and_a_return_end_with_one_site_that_serves(
    twin: PlayedTwin, dr_ctl: Command, in_step: Callable[..., list[str]], operation: str, verb: str, site: str
) -> None:
    put(twin, "london", Q, 20)
    twin.wait_mirrored()
    twin.kill("london")
    killed = in_step(verb, site) if operation == "failover" else []
    moved = dr_ctl(*LOST)
    ended, after = moved, tuple[int, ...]()
    if operation == "reinstate":
        twin.start("london")
        until(lambda: any(host.is_active for host in twin.nodes("london").hosts))
        killed = in_step(verb, site)
        ended = dr_ctl("reinstate", "london", "--yes")
        after = () if ended.code == 0 else (dr_ctl("reinstate", "london", "--yes").code,)

    assert killed == [site], ended.document
    assert (moved.code, ended.code in (0, 20)) == (0, True), ended.document
    assert serving(twin) == ("paris",), ended.document
    assert after in ((), (0,))
    assert twin.depth("paris", Q) == 20
