"""An installation that answers: two sites of a twin, what a test does to them, sees of them, hears in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from dr_ctl.engine.plan import Call
from dr_ctl.topologies.common.session import change
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin import console
from dr_ctl_lab.twin.console import ADMIN, Console
from dr_ctl_lab.twin.jolokia import Answer, Management, Request, answer, failed
from dr_ctl_lab.twin.mirror.broker import MirrorBroker
from tests.broker.recorder import LOCKING
from tests.twin.matrix import put, take
from tests.twin.subject import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Shell

PASSWORD = "not-told"
QUEUES = ("orders.in", "orders.audit")
NOT_NOW = failed("java.lang.IllegalStateException", "not now", 500)


class Site:
    """One broker of a twin. `before_change` and `after_change` are called with the operation of each request that
    changes something; `instead` has other answers to a kind of request."""

    def __init__(self, twin: PlayedTwin, name: str) -> None:
        self.twin, self.name, self.host = twin, name, twin.host(name)
        broker = self.host.broker
        assert isinstance(broker, MirrorBroker)
        self.broker = broker
        self.instead: dict[str, Answer] = {}
        self.logins: set[str | None] = set()
        self.before_change: Callable[[str], object] = lambda operation: None
        self.after_change: Callable[[str], object] = lambda operation: None

    @property
    def url(self) -> str:
        return self.host.jolokia

    def answer(self, request: Request) -> Answer:
        if request.kind in self.instead:
            return self.instead[request.kind]
        if request.operation in LOCKING or not request.changes:
            return answer(self.host.management, request)
        self.before_change(request.operation)
        reply = answer(self.host.management, request)
        self.after_change(request.operation)
        return reply

    def do(self, call: Call) -> None:
        wanted = change(call.request)
        request = Request(
            "exec", wanted.bean, wanted.operation, tuple(wanted.arguments), None, ignore_errors=False, echo=None
        )
        with self.twin.locked():
            assert answer(self.host.management, request)["status"] == 200

    # what it is like

    @property
    def changes(self) -> list[str]:
        return [item.operation for item in self.host.changes if item.status == 200 and item.operation not in LOCKING]

    def document(self, name: str) -> dict[str, Any] | None:
        found_queues = self.broker.queues.get(name)
        value: dict[str, Any] | None = (
            json.loads(found_queues.user) if found_queues is not None and found_queues.user is not None else None
        )
        return value

    @property
    def settable(self) -> dict[str, Any]:
        """Everything that dr-ctl can set."""
        own = [queue for queue in self.broker.queues.values() if not queue.name.startswith("dr-ctl.")]
        return {
            "listeners": {listener.name: listener.started for listener in self.broker.acceptors.values()},
            "links": self.broker.link.started,
            "paused": {queue.name for queue in own if queue.paused},
            "queues": {queue.name for queue in own},
        }

    # what a test does to it

    def password(self, word: str) -> None:
        self.broker.users = {**self.broker.users, ADMIN: word}

    @property
    def open(self) -> bool:
        return self.broker.acceptors["clients"].started

    def let_in(self, listener: str = "clients") -> None:
        with self.twin.locked():
            self.broker.open_listener(self.broker.acceptors[listener])

    def keep_out(self, listener: str = "clients") -> None:
        with self.twin.locked():
            self.broker.close_listener(self.broker.acceptors[listener])

    def queue(self, name: str, **more: Any) -> None:
        paused = more.pop("paused", False)
        with self.twin.locked():
            options = {"name": name, "address": name, "routing-type": "ANYCAST", "durable": True, **more}
            self.broker.create_queue(options, here_only=True)
            self.broker.queues[name].paused = paused

    def put(self, queue: str, count: int = 1) -> None:
        put(self.twin, self.name, queue, count)

    def take(self, queue: str) -> None:
        take(self.twin, self.name, queue)


class Sites:
    """Two sites, of which London serves, and can be lost and come back."""

    def __init__(self, dr_ctl: Shell, twin: PlayedTwin) -> None:
        self._dr_ctl, self.twin = dr_ctl, twin
        self.london, self.paris = (Site(twin, name) for name in twin.sites)
        self.lost_ids: list[str] = []

    @property
    def both(self) -> tuple[Site, Site]:
        return self.london, self.paris

    @property
    def changes(self) -> list[str]:
        return self.london.changes + self.paris.changes

    @property
    def urls(self) -> dict[str, str]:
        return {site.name: site.url for site in self.both}

    @property
    def settable(self) -> list[dict[str, Any]]:
        return [self.london.settable, self.paris.settable]

    def password(self, word: str) -> None:
        for site in self.both:
            site.password(word)

    def forget(self) -> None:
        """What was changed until now was the test's."""
        for site in self.both:
            site.host.changes.clear()

    def wait_settled(self) -> None:
        until(lambda: all(site.broker.attached and site.broker.is_settled for site in self.both))

    def settings(self, *, london: str | None = None, paris: str | None = None, **more: Any) -> Path:
        """Write them, with these addresses in the place of their own."""
        return self._dr_ctl.settings(london or self.london.url, paris or self.paris.url, drain={"poll": "5ms"}, **more)

    def logged_in(self, **addresses: str) -> None:
        """Where the clients of a site are greeted, as the settings say."""
        with self._dr_ctl.edited() as result:
            for site, address in addresses.items():
                result["sites"][site]["brokers"][0]["stomp"] = address

    def lose(self, *, shown: bool = True) -> None:
        """London is gone, with two messages and an acknowledgement that Paris lacks; its ports are `shown` to refuse
        where the settings name an address of its clients."""
        broker = self.london.broker
        self.twin.cut("london")
        until(lambda: not broker.attached)
        messages = broker.queues["orders.in"].messages
        self.london.take("orders.in")
        before = set(messages)
        self.london.put("orders.in", 2)
        self.lost_ids = [f"{broker.node}:{number}" for number in messages if number not in before]
        self.twin.kill("london")
        until(lambda: not self.paris.broker.attached)
        self.forget()
        if shown:
            self.logged_in(london="stomp://{}:{}".format(*self.london.host.stomp))

    def come_back(self) -> None:
        """London is back; what it holds is shipped as soon as Paris lets it in."""
        self.twin.heal()
        self.twin.start("london")
        until(lambda: self.paris.broker.attached)
        self.forget()


def listen(sites: Sequence[Site], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every request at these sites, which are all there are, come by the test."""
    by_name = {id(site.host.management): site for site in sites}

    def heard(at: Management, request: Request) -> Answer:
        return by_name[id(at)].answer(request)

    monkeypatch.setattr(console, "answer", heard)
    let_in = Console.login_refusal

    def asked(at: Console, authorization: str | None) -> Any:
        by_name[id(at.host.management)].logins.add(authorization)
        return let_in(at, authorization)

    monkeypatch.setattr(Console, "login_refusal", asked)
    for site in sites:
        for name in ("DLQ", "ExpiryQueue"):  # no test speaks of them
            site.broker.destroy_queue(name, here_only=True)
        site.password(PASSWORD)
