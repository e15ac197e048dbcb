"""`dr-ctl sync` as a command, and what a run of `classic-brokersync` removes, leaves and keeps aside: by evidence.

Each story is a line: what happens, and what is so then. `lie 6 10`: so many messages lie at London and at Paris."""

import json
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.agents.sync import SyncAgent, SyncStatus
from dr_ctl.cli.app import run
from dr_ctl.core.system import boottime_s, in_background, system
from dr_ctl.topologies.brokersync.sync.brokers import PairBroker
from dr_ctl.topologies.classic.beans import EVERY, MOVES, OPENS, REMOVES_QUEUES, STOPS, Permit
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.classic.brokersync.broker import BrokerSyncBroker
from dr_ctl_lab.twin.classic.policy import CONNECTOR, DESTINATION, Policy
from dr_ctl_lab.twin.kinds import BROKERSYNC
from dr_ctl_lab.twin.nodes import Layout
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.timeouts import time_now
from tests.topologies.fanout import stories
from tests.twin.matrix import ACCEPTED, put, without_agents
from tests.twin.subject import DLQ, IN, TEXT, ClassicGroupSubject, ClassicSubject, until

TOPOLOGY = BROKERSYNC
DEEP = 2600
SETTLE = "sync --settle --site"
LOOKS = ("status", "validate", "swapover --to paris --dry-run")


@pytest.mark.parametrize("lacks", [item for item in EVERY if item not in (STOPS, REMOVES_QUEUES)], ids=str)
def test_a_line_that_the_policy_of_a_console_lacks_is_told_before_a_move(
    twin: PlayedTwin, dr_ctl: Command, lacks: Permit
) -> None:
    kinds = {"": "", "connector": CONNECTOR, "destinationType": DESTINATION}
    kind = kinds[lacks.kind.partition("=")[0]] if "clientConnectors" not in lacks.kind else ""
    for site in twin.sites:
        twin.host(site).broker.policy = Policy(False, {kind: (lacks.name,)}, {})  # type: ignore[attr-defined]

    result = dr_ctl("validate", "--to", "paris")

    lines = [finding["remedy"] for finding in result.document["findings"] if finding["id"].startswith("DR-POLICY-")]
    assert lines
    assert all(lacks.line in line for line in lines)
    assert (result.code == 0) is (lacks is MOVES), "a return alone needs it"
    twin.kill("london")
    assert dr_ctl("failover", "--to", "paris", *ACCEPTED, "--dry-run").code == (10 if lacks is OPENS else 0)


STORIES = Path(__file__).with_name("brokersync_stories.txt").read_text("utf-8")
TOLD = stories.read(
    STORIES.format(IN=IN, SETTLE=SETTLE, DEEP=DEEP, without_60=DEEP - 60, without_8=DEEP - 8, without_4=DEEP - 4)
)


class Story(stories.Story):
    """Without the twin's own agents."""

    def __init__(
        self, twin: PlayedTwin, dr_ctl: Command, capture: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
    ) -> None:
        super().__init__(twin, dr_ctl)
        without_agents(twin)
        self.pair, self.patch, self._capture = ClassicSubject(twin), patch, capture
        self._stepped, self._begun = SyncAgent.step, [True]

    lines: list[dict[str, Any]]
    alone: list[str]

    def run(self, rest: str) -> None:
        if " sync --hold" in rest or " sync --go-on" in rest:
            code, *words = rest.split()
            self.ended = self._dr_ctl(*words)
            assert self.ended.code == int(code), self.ended.told
        else:
            super().run(rest)

    # the agent

    def follow(self, lasting: str) -> tuple[int, dict[str, Any]]:
        """Its exit code, and the last of the documents that it wrote, a line each."""
        self._capture.readouterr()
        code = run(["sync", "--json", "--for", lasting], time_now())
        *self.lines, last = [json.loads(line) for line in self._capture.readouterr().out.splitlines()]
        return code, last

    def agent(self, lasting: str) -> None:
        code, last = self.follow(lasting)
        self.ended = Ended(code, last, "")
        assert self._begun, "nothing happened beside it"

    def beside(self, step: str) -> None:
        """Something happens beside the next agent, once it has compared both sites."""
        stepped, begun = self._stepped, list[bool]()

        def stepping(agent: SyncAgent) -> SyncStatus:
            standing = stepped(agent)
            queues = standing.kept.queues
            if not begun and queues and all(queue.compared is not None for queue in queues):
                begun.append(True)
                self.play(step)
            return standing

        self._begun = begun
        self.patch.setattr(SyncAgent, "step", stepping)

    def deleted(self, count: str) -> None:
        data = self.ended.document["data"]
        assert (data["deleted"], data["left"]) == (int(count), 0) if count != "0" else data["deleted"] == 0

    def phase(self, word: str) -> None:
        assert self.lines[-1]["phase"] == word

    def primary(self, site: str) -> None:
        assert self.lines[0]["primary"] == site

    def refused(self, whose: str) -> None:
        """The file that the settings name holds a wrong password: of the agent's listener, or of the site's console."""
        site, _, listener = whose.partition(".")
        path = self.twin.settings_path.parent / "secrets" / f"{site}-orders-1{listener and '.' + listener}"
        right = path.read_text(encoding="utf-8")
        path.write_text("not this one", encoding="utf-8")
        code, last = self.follow("5s")
        ended = Ended(code, last, "")
        assert (code, ended.ids, "refused" in last["summary"]) == (2, ["DR-AGENT-009"], True), last
        self.play("paris 3")
        path.write_text(right, encoding="utf-8")

    def looks_without(self, ident: str) -> None:
        for look in LOOKS:
            assert ident not in self._dr_ctl(*look.split()).told

    # what happens

    def work(self, rest: str) -> None:
        sent, consumed = map(int, rest.split())
        self.send(f"london {sent}")
        self.take(f"london {consumed}")
        until(lambda: self.pair.depth("paris", IN) == sent)

    def send(self, rest: str) -> None:
        site, count, queue = f"{rest} {IN}".split()[:3]
        self.pair.fill(site, int(count), queue)
        if self.pair.bridges(site):
            self.pair.settled()

    def take(self, rest: str) -> None:
        site, count, word = f"{rest} ACK".split()[:3]
        self.pair.take(site, int(count), word)

    def purge(self, queue: str) -> None:
        self.pair.on("london", "purge()", queue=queue or IN)

    def removed(self, count: str) -> None:
        asked = ",".join(f"'{item}'" for item in self.pair.ids("london")[: int(count)])
        self.pair.on("london", f"removeMatchingMessages({TEXT})", f"JMSMessageID IN ({asked})")

    def moved_aside(self, count: str) -> None:
        """London's counters cover so many more than Paris lacks."""
        self.pair.on("paris", f"moveMatchingMessagesTo({TEXT},{TEXT},int)", "", "aside", int(count))

    def retry_dead(self, _: str) -> None:
        self.pair.on("london", "retryMessages()", queue=DLQ)
        self.pair.settled()

    def works_beside(self, seconds: str) -> None:
        """A message comes and one leaves all the time, also while a browse is made."""
        end, browsed = boottime_s() + float(seconds), PairBroker._browse

        def work() -> None:
            while boottime_s() < end:
                self.pair.fill("london", 1)
                system().sleep(0.05)
                self.pair.take("london", 1)
                system().sleep(0.09)

        def slowly(end: PairBroker, queue: str) -> list[str]:
            system().sleep(0.05)
            shown = browsed(end, queue)
            system().sleep(0.05)
            return shown

        self.patch.setattr(PairBroker, "_browse", slowly)
        in_background(work, "clients")

    def whole(self, _: str) -> None:
        row = self.ended.document["data"]["queues"][0]
        assert (row["whole"], row["unproven"], row["deleted"] > 10) == (True, 0, True), row

    def ships_nothing(self, _: str) -> None:
        self.pair.done("london", self.pair.network("london"), "stop()")

    def one_way(self, _: str) -> None:
        """Paris copies nothing to London."""
        with self.twin.locked():
            paris = self.twin.host("paris").broker
            assert isinstance(paris, BrokerSyncBroker)
            paris.composites.pop(IN)
            paris.queues.pop(f"{IN}.to-london", None)

    def open_for_a_while(self, count: str) -> None:
        """Paris, which waits and ships nothing, was restarted: it opened its listeners, and clients sent there."""
        self.pair.done("paris", self.pair.network("paris"), "stop()")
        self.twin.open_clients("paris")
        self.send(f"paris {count}")
        self.twin.close_clients("paris")

    def store_is_lost(self, _: str) -> None:
        self.twin.kill("london")
        for queue in self.twin.host("london").broker.queues.values():
            queue.messages.clear()
            queue.by_origin.clear()
        self.play("start london; open london")

    def at_london_alone(self, _: str) -> None:
        """5 dead letters that are retried never reach Paris again; the agent has deleted 35 copies there."""
        self.play("work 40 0; beside clients_work; agent 4s; deleted 35; retry_dead; lie 10 5")
        self.alone = sorted({*self.pair.ids("london")} - {*self.pair.ids("paris")})

    def clients_work(self, _: str) -> None:
        self.play("take london 30; take london 5 NACK")

    def lost_and_back(self, _: str) -> None:
        self.patch.setattr(SyncAgent, "step", self._stepped)
        self.play(f"kill london; run 0 failover --to paris {' '.join(ACCEPTED)}; start london")

    def failed_over(self, _: str) -> None:
        """Paris has taken over and copies nothing back, clients have sent 7 there, and London's listeners are open."""
        self.play(
            f"kill london; run 0 failover --to paris {' '.join(ACCEPTED)}; send paris 7; start london; open london"
        )

    def silent_for(self, seconds: str) -> None:
        self.twin.freeze("paris")
        in_background(lambda: (system().sleep(float(seconds)), self.twin.thaw("paris")), "thaw")

    def monitored(self, lasting: str) -> None:
        assert run(["monitor", "--for", lasting, "--json"], time_now()) == 0
        self._capture.readouterr()

    # what is so then

    def finds_only(self, ids: str) -> None:
        assert {*self.ended.ids} == {*ids.split()}

    def _depths(self) -> list[int]:
        return [self.pair.depth(site, IN) for site in ("london", "paris")]

    def lie(self, rest: str) -> None:
        assert self._depths() == [*map(int, rest.split())]

    def comes_to(self, rest: str) -> None:
        until(lambda: self._depths() == [*map(int, rest.split())])

    def lying(self, site: str) -> list[str]:
        """How many: `paris 17`."""
        return [str(self.pair.depth(site, IN))]

    def alike(self, _: str) -> None:
        assert {*self.pair.ids("paris")} == {*self.pair.ids("london")}

    def kept_aside(self, count: str) -> None:
        assert self.pair.depth("london", f"dr-ctl.quarantine.london.{self.pair.copied('london')}") == int(count)

    def exposure(self, rest: str) -> None:
        bounds = self.ended.document["data"]["bounds"]
        assert [bounds[name]["at_most"] for name in ("lost", "duplicates")] == [int(word) for word in rest.split()]

    def lost(self, rest: str) -> None:
        queue, count = rest.split()
        rows = {item["name"]: item["lost"] for item in self.ended.document["data"]["bounds"]["queues"]}
        assert rows[queue] == int(count)

    def offers_alone(self, _: str) -> None:
        row = {"pair": "orders-1", "name": IN, "ids": self.alone, "why_not": None}
        assert self.ended.document["data"]["queues"] == [row]

    def has_alone(self, _: str) -> None:
        assert {*self.alone} < {*self.pair.ids("london")}


@pytest.fixture
def story(
    twin: PlayedTwin, dr_ctl: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Story:
    return Story(twin, dr_ctl, capsys, monkeypatch)


@pytest.mark.parametrize("line", TOLD.values(), ids=TOLD.keys())
def test_story(story: Story, line: str) -> None:
    story.play(line)


def test_every_look_says_that_the_agent_is_gone_or_held_and_what_it_said(story: Story, tmp_path: Path) -> None:
    story.play("work 10 0; agent 1s; purge; agent 2s")
    path = tmp_path / "state" / "sync.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"phase": "held", "at": "2026-11-23T00:00:00.000Z"}))

    for look in LOOKS:
        shown = story._dr_ctl(*look.split())
        gone, held = shown.texts("DR-AGENT-008")
        assert ("has not been running since 2026-11-23" in gone, "10 message(s) left" in held) == (True, True)
        assert "10 message(s) left" in shown.texts("DR-AGENT-001")[0]


@pytest.mark.parametrize("layout", [Layout(nodes=2, takeover_s=2.0)])
def test_the_agent_goes_on_at_the_node_that_takes_over(twin: PlayedTwin, dr_ctl: Command) -> None:
    without_agents(twin)
    put(twin, "london", IN, 10)
    until(lambda: twin.depth("paris", IN) == 10)

    def goes_on() -> None:
        system().sleep(5)
        twin.kill("london", node="a")
        until(lambda: any(host.is_active for host in twin.nodes("london").hosts))
        system().sleep(10)
        ClassicGroupSubject(twin).take("london/b", 4)

    beside = in_background(goes_on, "clients")
    agent = dr_ctl("sync", "--for", "60s")
    beside.result()

    assert (agent.code, twin.depth("paris", IN)) == (0, 6), agent.document
