"""Stories of a twin whose producers write to both sites, each in a line: what happens, and what is so then."""

import itertools
import json
import os
import shlex
from pathlib import Path
from typing import Any, cast

import pytest

from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.fanout import reading
from dr_ctl.topologies.fanout.reading import ListedQueue, Session, list_completely
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.classic.fanout.broker import CONFIRMATIONS, ID_HEADER, FanoutBroker
from dr_ctl_lab.twin.messages import Consumer, Message
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.twin.matrix import edited

Q = "orders.in"
SITES = ("london", "paris")
ANY = "--accept-loss unknown --accept-duplicates unknown"


def read(text: str) -> dict[str, str]:
    """Stories by their names, from lines `name: steps`; what goes on is indented."""
    return dict(line.split(": ", 1) for line in text.strip().replace("\n    ", " ").splitlines())


def at(twin: PlayedTwin, site: str) -> FanoutBroker:
    result = twin.host(site).broker
    assert isinstance(result, FanoutBroker)
    return result


def route(twin: PlayedTwin, site: str, queue: str, body: bytes, headers: dict[str, str], **more: Any) -> None:
    with twin.locked():
        broker = at(twin, site)
        broker.route(Message(broker.next_number(), queue, body, text=True, headers=headers, **more))


def send(twin: PlayedTwin, *ids: str, to: tuple[str, ...] = SITES, **headers: str) -> None:
    for ident in ids:
        for site in to:
            route(twin, site, Q, f"body {ident}".encode(), {ID_HEADER: ident, **headers})


def consume(twin: PlayedTwin, site: str, *ids: str, noted: bool = True) -> None:
    """As a client does; `noted` where it wrote the id down."""
    with twin.locked():
        broker = at(twin, site)
        for ident in ids:
            [message] = [
                message for message in broker.queues[Q].messages.values() if message.headers[ID_HEADER] == ident
            ]
            if noted:
                broker.ids.add(Q, ident, local=True)
            broker.dispatched[Q] += message.number not in broker.queues[Q].delivering
            broker.remove(broker.queues[Q], message)


def lose_london(twin: PlayedTwin, dr_ctl: Command) -> Ended:
    twin.kill("london")
    ended = dr_ctl("failover", "--to", "paris", *ANY.split(), "--yes")
    assert ended.code == 0, ended.told
    return ended


class Story:
    """Plays one, step by step; a step is a word and what it needs. What a command ended with is asked for behind it."""

    def __init__(self, twin: PlayedTwin, dr_ctl: Command) -> None:
        self.twin, self._dr_ctl = twin, dr_ctl
        self.kill, self.start, self.open, self.shut = twin.kill, twin.start, twin.open_clients, twin.close_clients

    ended: Ended

    def play(self, line: str) -> None:
        for step in line.split("; "):
            word, _, rest = step.partition(" ")
            if word in SITES:
                assert sorted(self.lying(word)) == sorted(rest.split()), step
            else:
                getattr(self, word)(rest)

    def run(self, rest: str) -> None:
        """A command with --yes, its exit code in front."""
        code, _, words = rest.partition(" ")
        looks = words.startswith(("validate", "status", "plan")) or "--dry-run" in words
        self.ended = self._dr_ctl(*shlex.split(words), *([] if looks else ["--yes"]))
        allowed = [int(code)] if code != "refused" else list(range(10, 30))
        assert self.ended.code in allowed, self.ended.told

    def unchanged(self, rest: str) -> None:
        """As `run`; and it changes nothing at any broker."""
        before = len(self.twin.changes())
        self.run(rest)
        assert len(self.twin.changes()) == before

    # What happens

    def send(self, rest: str) -> None:
        ids, _, to = rest.partition(" to ")
        send(self.twin, *ids.split(), to=tuple(to.split()) or SITES, priority_of="mine")

    def nameless(self, sites: str) -> None:
        for site in sites.split():
            route(self.twin, site, Q, b"who?", {})

    def counted(self, site: str) -> None:
        """A message with a property that STOMP cannot carry."""
        route(self.twin, site, Q, b"body", {ID_HEADER: "counted"}, longs={"amount": 7})

    patch: pytest.MonkeyPatch

    def consume(self, rest: str) -> None:
        site, *ids = rest.split()
        consume(self.twin, site, *ids)

    def shows_none(self, _: str) -> None:
        self.patch.setattr("dr_ctl.topologies.fanout.reading.read", lambda *_: {})

    def hold(self, rest: str) -> None:
        """A client has it in hand."""
        site, ident = rest.split()
        queue = at(self.twin, site).queues[Q]
        [number] = [number for number, message in queue.messages.items() if message.headers[ID_HEADER] == ident]
        queue.delivering[number] = cast("Consumer", self)
        at(self.twin, site).dispatched[Q] += 1

    def purge(self, site: str) -> None:
        with self.twin.locked():
            for message in list(at(self.twin, site).queues[Q].available()):
                at(self.twin, site).remove(at(self.twin, site).queues[Q], message)

    def empty(self, site: str) -> None:
        """Its store is lost while it is down."""
        with self.twin.locked():
            at(self.twin, site).queues.clear()

    def page(self, rest: str) -> None:
        for site in SITES:
            at(self.twin, site).browse_page = int(rest)

    def restart(self, site: str) -> None:
        self.play(f"kill {site}; start {site}; open {site}")

    def lose(self, _: str) -> None:
        self.ended = lose_london(self.twin, self._dr_ctl)

    def busy(self, _: str) -> None:
        """Clients at the serving site take a message each time the other is listed, unless their queue is paused; and
        producers send another."""
        numbers = itertools.count()

        def listed(session: Session, queue: Queue | None) -> ListedQueue:
            shown = list_completely(session, queue)
            serving = next((site for site in SITES if at(self.twin, site).serves), None)
            if serving not in (None, session.site) and not at(self.twin, serving).queues[Q].paused:
                consume(self.twin, serving, *self.lying(serving)[:1])
                send(self.twin, f"new-{next(numbers)}")
            return shown

        self.patch.setattr(reading, "list_completely", listed)

    def slow(self, rest: str) -> None:
        """A message comes to the first site before each of these readings, and to the other so many readings later."""
        looked, looks, (one, other, lag, *come) = reading.Comparer._compare_queue, itertools.count(), rest.split()
        self.come = come

        def slowly(*words: Any) -> Any:
            for look in itertools.islice(looks, int(words[2] == Q)):
                send(self.twin, *{str(look)}.intersection(come), to=(one,))
                send(self.twin, *{str(look - int(lag))}.intersection(come), to=(other,))
            return looked(*words)

        self.patch.setattr(reading.Comparer, "_compare_queue", slowly)

    def arrive(self, rest: str) -> None:
        """What was on its way to the second site is there, and nothing more comes."""
        one, other = rest.split()
        self.come.clear()
        send(self.twin, *sorted({*self.lying(one)} - {*self.lying(other)}), to=(other,))

    def cross(self, ident: str) -> None:
        """A message comes to one site before the counters are read, and to the other before they are read again."""
        readings, sites = reading._readings, iter(("paris", "london"))

        def crossing(*words: Any) -> Any:
            for site in itertools.islice(sites, 1):
                send(self.twin, ident, to=(site,))
            return readings(*words)

        self.patch.setattr(reading, "_readings", crossing)

    def without(self, key: str) -> None:
        """Take a key out of the settings: of the installation, and of each broker."""
        with edited(self.twin) as settings_file:
            settings_file.pop(key, None)
            for site in settings_file["sites"].values():
                for case in (site, *site["brokers"]):
                    case.pop(key, None)

    # What is so then

    def lying(self, site: str) -> list[str]:
        with self.twin.locked():
            found_queues = at(self.twin, site).queues.get(Q)
            return (
                [message.headers[ID_HEADER] for message in found_queues.messages.values()]
                if found_queues is not None
                else []
            )

    def paris_keeps(self, ids: str) -> None:
        assert {*ids.split()} <= {*self.lying("paris")}

    def copied(self, rest: str) -> None:
        """Whole: body, durability, headers."""
        site, ident = rest.split()
        [item] = [
            message
            for message in at(self.twin, site).queues[Q].messages.values()
            if message.headers[ID_HEADER] == ident
        ]
        items = (item.body, item.text, item.durable, item.headers["priority_of"])
        assert items == (f"body {ident}".encode(), True, True, "mine")

    def finding(self, id_: str) -> dict[str, str]:
        return next(finding for finding in self.ended.document["findings"] if finding["id"] == id_)

    def finds(self, rest: str) -> None:
        """A finding; behind it, where it matters, its severity or words of it."""
        id_, _, words = rest.partition(" ")
        reported = self.finding(id_)
        assert words == reported["severity"] or words in reported["text"], reported

    def finds_no(self, id_: str) -> None:
        assert id_ not in {finding["id"] for finding in self.ended.document["findings"]}

    def says(self, words: str) -> None:
        assert words in self.ended.told

    def needs(self, rest: str) -> None:
        """What `validate` says that an operation needs."""
        operation, _, option = rest.partition(" ")
        verdict = self.ended.document["data"]["operations"][operation]
        assert (verdict["exit_code"], verdict["needs"]) == (10, [option])

    def offers(self, rest: str) -> None:
        """The remedy of a finding names that option."""
        id_, _, option = rest.partition(" ")
        remedy = self.finding(id_)["remedy"]
        assert " ".join(shlex.split(remedy[remedy.index("--accept-duplicates") :])[:2]) == option

    def listed(self, rest: str) -> None:
        kind, *ids = rest.split()
        [*_, last] = sorted(Path(os.environ["DR_CTL_STATE_DIR"]).glob("**/runs/*"))
        lines: list[str] = []
        for line in (last / "journal.jsonl").read_text(encoding="utf-8").splitlines():
            lines += json.loads(line).get("evidence", {}).get(kind, {}).get(Q, [])
        assert lines == ids

    def least(self, number: str) -> None:
        """How many sites have to confirm what a producer sends."""
        assert (self.twin.directory / CONFIRMATIONS).read_text().strip() == number

    def serves(self, site: str) -> None:
        assert at(self.twin, site).serves

    def closed(self, site: str) -> None:
        assert not at(self.twin, site).serves

    def debts(self, number: str) -> None:
        assert bool(self._dr_ctl("status").document["debts"]) is bool(int(number))

    def nothing_paused(self, _: str) -> None:
        assert not [queue for site in SITES for queue in at(self.twin, site).queues.values() if queue.paused]

    def alike(self, _: str) -> None:
        assert {*self.lying("london")} == {*self.lying("paris")}
