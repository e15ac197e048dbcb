"""Views of two brokers that share a store: London holds it and serves, Paris waits for it."""

from dataclasses import replace
from typing import Any

from dr_ctl.engine.goals import Goal
from dr_ctl.topologies.classic import beans
from dr_ctl.topologies.common.seen import Silent
from dr_ctl.topologies.common.view import Acceptor, Config, Queue
from dr_ctl.topologies.sharedstore.lock import LockSeen
from dr_ctl.topologies.sharedstore.view import BrokerView, StoreConfig, StoreSeen, beside
from tests.topologies import made

FRESH = LockSeen(True, "london", 8.0, 0.0)
FILE = LockSeen(True)


CONFIG = Config(("stomp",), None, None)


def config(site: str, **more: Any) -> StoreConfig:
    told = {"broker": site, "holder": site, "holders": frozenset({"london", "paris"}), "by_row": True}
    return StoreConfig(**told | more)


def queue(name: str, depth: int = 0, **more: Any) -> Queue:
    return made.queue(name, beans.queue("london", name), depth, **{"routing": "queue", **more})


def door(site: str, *, started: bool = True) -> Acceptor:
    return made.door("stomp", beans.connector(site, "stomp"), 61613, "STOMP", started=started, opens_at_boot=True)


def broker(site: str = "london", *queues: Queue, closed: bool = False, **more: Any) -> BrokerView:
    """One that answers."""
    told: dict[str, Any] = {
        "version": "5.18.3",
        "start": "ID:vm-1",
        "acceptors": (door(site, started=not closed),),
        "queues": queues,
        "lock": replace(FRESH, holder=site),
        "runs": True,
    }
    return _view(site, **{**told, **more})


def waiting(site: str = "paris", **more: Any) -> BrokerView:
    """One whose ports refuse."""
    return _view(site, **{"answered": False, "lock": FRESH, **more})


def _view(site: str, **more: Any) -> BrokerView:
    told = {
        "config": CONFIG,
        "own": config(site),
        "version": "",
        "node": site,
        "start": "",
        "now_ms": 1_800_000_000_000,
    }
    return made.view(BrokerView, site, **{**told, **more})


def seen(*views: BrokerView | Silent) -> StoreSeen:
    return StoreSeen(beside({view.site: {view.pair: view} for view in views}))


def with_commands(site: str) -> StoreConfig:
    return config(site, commands=frozenset({Goal.START, Goal.STOP}))
