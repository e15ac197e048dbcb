"""The yardstick for the continuity plugin: steps, gate and window of a swapover of dr-ctl, and nothing else.

No checks, no journal, no proofs, no undo. Reads where the brokers are from the settings file of a lab.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests
import yaml

POLL_S, WINDOW_S = 0.05, 2.2
DOMAIN, ID = "org.apache.activemq.artemis", "_AMQ_DUPL_ID"
COUNTS = ["MessageCount", "DeliveringCount", "ScheduledCount", "ConsumerCount", "MessagesAdded"]
CONFIG = {"ignoreErrors": True, "includeRequest": False, "canonicalNaming": True}
FLOWS, COMMANDS, STAGED = (".out.mirror", ".out.acks", ".in.acks"), ("cmd.out", "cmd.in"), ".in.mirror"
Queues = dict[str, tuple[str, dict[str, Any]]]


class Broker:
    """One broker's console."""

    def __init__(self, folder: Path, site: str, document: dict[str, Any]) -> None:
        self.url, self.server = document["jolokia"], f'{DOMAIN}:broker="{document.get("broker", site)}"'
        self.service = f'{self.server},component=continuity,name="continuity.service"'
        self.http = requests.Session()
        self.http.auth = (document["username"], (folder / document["password"]["file"]).read_text().strip())
        self.http.headers["Origin"] = "http://127.0.0.1"

    def post(self, *bodies: dict[str, Any]) -> list[Any]:
        document = self.http.post(self.url, json=[{**body, "config": CONFIG} for body in bodies], timeout=30).json()
        assert all(item["status"] == 200 for item in document), document
        return [item["value"] for item in document]

    def call(self, mbean: str, operation: str, *arguments: Any) -> dict[str, Any]:
        return {"type": "exec", "mbean": mbean, "operation": operation, "arguments": list(arguments)}

    def queues(self) -> Queues:
        """Bean and figures of each queue, by name."""
        patterns = (f"{self.server},queue=*,*", f"{self.server},component=addresses,*,queue=*")
        items = {}
        for item in self.post(*({"type": "read", "mbean": pattern, "attribute": COUNTS} for pattern in patterns)):
            for bean, figures in item.items():
                name = next(part for part in bean.split(",") if part.startswith("queue="))[7:-1]
                items[name] = bean, figures
        return items

    def ids(self, bean: str) -> frozenset[str]:
        plain, later = self.post(
            self.call(bean, "countMessages(java.lang.String,java.lang.String)", "", ID),
            self.call(bean, "listScheduledMessagesAsJSON()"),
        )
        return frozenset([*json.loads(plain), *(load[ID] for load in json.loads(later))])

    def remove(self, bean: str, ids: frozenset[str]) -> None:
        ordered = sorted(ids)
        for at in range(0, len(ordered), 50):
            text = ", ".join(f"'{item}'" for item in ordered[at : at + 50])
            self.post(self.call(bean, "removeMessages(java.lang.String)", f"{ID} IN ({text})"))


def under_way(queues: Queues) -> bool:
    return any(queue["MessageCount"] for name, (_, queue) in queues.items() if name.endswith(FLOWS))


def waits(queues: Queues, *, target: bool) -> bool:
    """Say whether a command is under way, or at the target a message waits for the staging delay."""
    if any(queue["MessageCount"] for name, (_, queue) in queues.items() if name.endswith(COMMANDS)):
        return True
    return target and any(queue["ScheduledCount"] for name, (_, queue) in queues.items() if name.endswith(STAGED))


def added(queues: Queues) -> dict[str, int]:
    return {name: queue["MessagesAdded"] for name, (_, queue) in queues.items() if not name.endswith(COMMANDS)}


def settle(pool: ThreadPoolExecutor, local: Broker, remote: Broker, names: list[str]) -> None:
    """Remove messages that must not be delivered once nothing waits; wait for the end of the window, and compare
    again."""
    since: tuple[float, Any] | None = None
    compared = False
    while True:
        source, target = pool.map(Broker.queues, (local, remote))
        if under_way(source) or under_way(target):
            since = None
        elif since is None or since[1] != (added(source), added(target)):
            since = time.monotonic(), (added(source), added(target))
        if since is not None and not (waits(source, target=False) or waits(target, target=True)):
            if not compared:
                remove_done(local, remote, source, target, names)
                compared = True
            elif time.monotonic() - since[0] >= WINDOW_S and not remove_done(local, remote, source, target, names):
                return
        time.sleep(POLL_S)


def remove_done(local: Broker, remote: Broker, source: Queues, target: Queues, names: list[str]) -> bool:
    """Compare by id, and remove surplus messages at the target; say whether there were any."""
    removed = False
    for name in names:
        staged, queue = target[name + STAGED][0], target[name][0]
        messages, waiting, delivered = local.ids(source[name][0]), remote.ids(staged), remote.ids(queue)
        assert messages <= waiting | delivered, name
        for bean, surplus in ((staged, (waiting - messages) | (waiting & delivered)), (queue, delivered - messages)):
            if surplus:
                remote.remove(bean, surplus)
                removed = True
    return removed


def main(settings: Path, target: str) -> None:
    """Move the service of a lab to `target`."""
    sites = yaml.safe_load(settings.read_text())["sites"]
    source = next(site for site in sites if site != target)
    local, remote = (Broker(settings.parent, site, sites[site]["brokers"][0]) for site in (source, target))
    with ThreadPoolExecutor(2) as pool:
        queues = local.queues()
        names = [name for name in queues if name + STAGED in queues]
        local.post(*(local.call(queues[name][0], "pause()") for name in names))
        while any(local.queues()[name][1]["DeliveringCount"] for name in names):
            time.sleep(POLL_S)
        local.post(local.call(local.service, "deactivateSite()"))
        local.post(*(local.call(queues[name][0], "resume()") for name in names))
        settle(pool, local, remote, names)
        remote.post(remote.call(remote.service, "activateSite(java.lang.Long)", 1000))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
