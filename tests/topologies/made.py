"""What a reading tells of brokers, made by hand for tests that ask none: each topology adds what is its own."""

from dataclasses import replace
from typing import Any, TypeVar

from dr_ctl.engine import ports
from dr_ctl.topologies.common.view import Acceptor, Queue

V = TypeVar("V")
PAIR = "orders-1"
PEERS = {"london": "paris", "paris": "london"}


def queue(name: str, bean: str, depth: int = 0, **more: Any) -> Queue:
    """A lasting queue of clients in which nothing has moved since its messages came."""
    none = dict.fromkeys(("delivering", "scheduled", "consumers", "acked", "removed"), 0)
    usual: dict[str, Any] = {"address": name, "routing": "anycast", "added": depth, "paused": False, **none}
    return Queue(name=name, bean=bean, depth=depth, **{**usual, **more})


def listener(name: str, bean: str, port: int | None, spoken: str, *, started: bool = True, **more: Any) -> Acceptor:
    protocols = frozenset(spoken.split())
    return replace(Acceptor(name, bean, started, port, protocols, opens_at_boot=False), **more)


def view(kind: type[V], site: str, **more: Any) -> V:
    """One broker at which nobody works."""
    usual = {"pair": PAIR, "site": site, "broker": site, "node": f"node-{site}", "version": "2.56.0"}
    nobody = dict.fromkeys(("acceptors", "queues", "connections", "consumers", "prepared"), ())
    return kind(**{**usual, "start": "1795251000000", "now_ms": 1795251263227, **nobody, **more})


class StepContext(ports.StepContext):
    """What a run gives a driver, on a clock that only waiting moves; it keeps what it is told."""

    def __init__(self) -> None:
        self.now_s, self.depths, self.whys, self.sampled = 0.0, list[int | None](), list[str | None](), list[Any]()

    def sample(self, evidence: Any) -> None:
        self.sampled.append(evidence)

    def report_waiting(self, about: str, depth: int | None, why_not_moving: str | None) -> None:
        self.depths.append(depth)
        self.whys.append(why_not_moving)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def monotonic(self) -> float:
        return self.now_s
