"""The yardstick: the same steps, gate and number of readings as a swapover of dr-ctl, and nothing else.

No checks, no journal, no proofs, no undo. Reads where the brokers are from the settings file of a lab or a twin, moves
all pairs side by side, and prints for how many seconds no listener was open.
"""

import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import requests
import yaml

POLL_S, STABLE = 0.02, 3
DOMAIN = "org.apache.activemq.artemis"
COUNTS = ["MessageCount", "DeliveringCount", "MessagesAdded"]
CONFIG = {"ignoreErrors": True, "includeRequest": False, "canonicalNaming": True}


class Broker:
    """One broker's console."""

    def __init__(self, folder: Path, peer: str, document: dict[str, Any]) -> None:
        self.url, self.node = document["jolokia"], ""
        self.http = requests.Session()
        self.http.auth = (document["username"], (folder / document["password"]["file"]).read_text().strip())
        self.http.headers["Origin"] = "http://127.0.0.1"
        [name] = self.post({"type": "search", "mbean": f"{DOMAIN}:broker=*"})[0]
        self.name = name.partition(":")[2]
        self.server = f"{DOMAIN}:{self.name}"
        self.listener = f'{self.server},component=acceptors,name="clients"'
        outflow = f"$ACTIVEMQ_ARTEMIS_MIRROR_{peer}"
        self.outflow = (
            f'{self.server},component=addresses,address="{outflow}",subcomponent=queues,'
            f'routing-type="anycast",queue="{outflow}"'
        )
        self.link = f'{self.server},component=broker-connections,name="{peer}"'
        self.known: set[str] = set()
        self.business: list[str] = []

    def post(self, *bodies: dict[str, Any]) -> list[Any]:
        document = self.http.post(self.url, json=[{**body, "config": CONFIG} for body in bodies], timeout=10).json()
        assert all(item["status"] == 200 for item in document), document
        return [item["value"] for item in document]

    def read(self, mbean: str, *attributes: str) -> dict[str, Any]:
        return {"type": "read", "mbean": mbean, "attribute": list(attributes)}

    def call(self, mbean: str, operation: str, *arguments: Any) -> dict[str, Any]:
        return {"type": "exec", "mbean": mbean, "operation": operation, "arguments": list(arguments)}

    def queues(self) -> str:
        return f"{self.server},component=addresses,address=*,subcomponent=queues,routing-type=*,queue=*"

    def find(self) -> None:
        answers = self.post(self.read(self.queues(), "InternalQueue"))[0]
        self.business = [bean for bean, value in answers.items() if not value["InternalQueue"]]
        self.known = {*self.business}

    def all_queues(self, operation: str) -> None:
        self.post(*[self.call(queue, operation) for queue in self.business])

    def delivering(self) -> int:
        answers = self.post(self.read(self.queues(), "DeliveringCount"))[0]
        return sum(answers[queue]["DeliveringCount"] for queue in self.business)

    def clients(self, operation: str) -> None:
        self.post(self.call(self.listener, operation))

    def flow(self) -> tuple[int, ...]:
        pending, outflow, link, _ = self.post(
            self.read(self.server, "PendingMirrorAcks"),
            self.read(self.outflow, "MessageCount", "DeliveringCount", "ConsumerCount", "MessagesAdded"),
            self.read(self.link, "Started", "Connected"),
            self.read(f"{self.server},component=acceptors,name=*", "Name", "Started"),
        )
        attached = link["Connected"] and outflow["ConsumerCount"] > 0
        return pending["PendingMirrorAcks"], outflow["MessageCount"], outflow["DeliveringCount"], not attached

    def everything(self) -> dict[str, tuple[int, int]]:
        """The full reading of the gate; depth and added of each business queue."""
        server, _, _, _, queues, *_ = self.post(
            self.read(self.server, "Active", "Version", "NodeID", "CurrentTimeMillis", "PendingMirrorAcks"),
            self.read("java.lang:type=Runtime", "StartTime"),
            self.read(f"{self.server},component=acceptors,name=*", "Name", "Started", "Parameters"),
            self.read(f"{self.server},component=broker-connections,name=*", "Name", "Started", "Connected", "Protocol"),
            self.read(self.queues(), *COUNTS),
            self.call(self.server, "listConnections(java.lang.String,int,int)", "", -1, -1),
            self.call(self.server, "listConsumers(java.lang.String,int,int)", "", -1, -1),
            self.call(self.server, "listPreparedTransactionDetailsAsJSON()"),
            self.call(self.server, "listLockCoordinatorsAsJSON()"),
        )
        assert server["PendingMirrorAcks"] == 0
        self.node = server["NodeID"]
        return {
            bean.replace(self.name, "HERE"): (queue["MessageCount"], queue["MessagesAdded"])
            for bean, queue in queues.items()
            if bean in self.known
        }

    def origins(self, queues: list[str]) -> list[set[tuple[str, int]]]:
        """The origins of the queues' messages: broker and number."""
        browses = [self.call(queue.replace("HERE", self.name), "browse(int,int)", 1, 1000) for queue in sorted(queues)]
        return [{_origin(row, self.node) for row in rows} for rows in self.post(*browses)] if browses else []


def _origin(row: dict[str, Any], node: str) -> tuple[str, int]:
    texts, longs = row.get("StringProperties") or {}, row.get("LongProperties") or {}
    born = texts.get("x-opt-amq-bkr-id")
    return (born, longs["x-opt-amq-mr-id"]) if born is not None else (node, int(row["messageID"]))


def main(settings: Path, target: str) -> None:
    """Move the service of a lab to `target`."""
    sites = yaml.safe_load(settings.read_text())["sites"]
    source = next(site for site in sites if site != target)
    with ThreadPoolExecutor(min(64, 3 * len(sites[source]["brokers"]))) as pool:

        def together(ask: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
            return list(pool.map(ask, *arguments))

        def brokers(site: str, peer: str) -> list[Broker]:
            return together(partial(Broker, settings.parent, peer), sites[site]["brokers"])

        local, remote, resuming = brokers(source, target), brokers(target, source), brokers(source, target)
        together(Broker.flow, (*local, *remote))
        together(Broker.find, (*local, *remote, *resuming))
        together(lambda broker: broker.all_queues("pause()"), local)
        in_a_row = 0
        while (in_a_row := in_a_row + 1 if not any(together(Broker.delivering, local)) else 0) < 2:
            time.sleep(POLL_S)
        began = time.perf_counter()
        together(lambda broker: broker.clients("stop()"), local)
        resumed = [pool.submit(broker.all_queues, "resume()") for broker in resuming]
        in_a_row = 0
        while (in_a_row := in_a_row + 1 if not any(map(any, together(Broker.flow, (*local, *remote)))) else 0) < 2:
            time.sleep(POLL_S)
        for item in resumed:
            item.result()
        window: list[Any] = []
        while True:
            readings = together(Broker.everything, (*local, *remote))
            window = [*window, readings] if not window or window[0] == readings else [readings]
            counts = [{name: depth for name, (depth, _) in row.items() if depth} for row in readings]
            if len(window) >= STABLE and counts[: len(local)] == counts[len(local) :]:
                ids = together(Broker.origins, (*local, *remote), [[*count] for count in counts])
                assert ids[: len(local)] == ids[len(local) :], ids
                break
            time.sleep(POLL_S)
        together(lambda broker: broker.clients("start()"), remote)
        print(time.perf_counter() - began)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
