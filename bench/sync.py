"""Rate, lag and memory of `dr-ctl sync` on two real Classic brokers.

    python bench/sync.py [--rate 1000] [--seconds 600] [--backlog 100000]

First messages are sent and consumed at the rate; the lag is the time since the serving broker had as many messages
consumed as the standby has copies deleted now. Then the backlog: a hundredth of it is consumed before the agent starts.
"""

import argparse
import bisect
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median, quantiles

from dr_ctl.jolokia.client import Account, Read, Reader, Wire
from dr_ctl.stomp_io.client import Connection, probe
from dr_ctl_lab.lab.classic.admin import ORIGIN, jolokia
from dr_ctl_lab.lab.kinds import BROKERSYNC
from dr_ctl_lab.lab.lab import Lab

QUEUE, BODY = "orders.in", "x" * 250
TICK_S, POLL_S = 0.02, 0.1
AGENT = (sys.executable, "-m", "dr_ctl")


class Depths:
    """The counters of both brokers."""

    def __init__(self, lab: Lab) -> None:
        self.wires = {}
        for name in ("london", "paris"):
            site = lab.site(name)
            result = Account(jolokia(site), site.admin.user, site.admin.password, ORIGIN)
            bean = f"org.apache.activemq:type=Broker,brokerName={site.broker}"
            self.wires[name] = Wire(result), f"{bean},destinationType=Queue,destinationName={QUEUE}"

    def read(self, name: str) -> tuple[int, int]:
        """Depth, and number of removed messages."""
        wire, bean = self.wires[name]
        value = Reader(wire).read([Read(bean, ("QueueSize", "DequeueCount"))], timeout_s=30)[0].value()
        return value["QueueSize"], value["DequeueCount"]

    def difference(self) -> int:
        return self.read("paris")[0] - self.read("london")[0]


def connected(lab: Lab) -> Connection:
    site = lab.site("london")
    login_result, connection = probe(site.stomp, site.app, None, timeout_s=10)
    assert connection is not None, login_result
    return connection


def send(lab: Lab, count: int, rate: float, stop: threading.Event) -> None:
    """Send `count` messages at the rate; the last with a receipt."""
    with closing(connected(lab)) as connection:
        began = time.monotonic()
        for sent in range(1, count + 1):
            headers = {"persistent": "true"} | ({"receipt": "last"} if sent == count or stop.is_set() else {})
            connection.stomp.send(f"/queue/{QUEUE}", BODY, headers=headers)
            if stop.is_set():
                break
            if sent % 20 == 0 and (ahead := began + sent / rate - time.monotonic()) > 0:
                stop.wait(ahead)
        while not any(frame.cmd == "RECEIPT" for frame in connection.receive(1.0)):
            pass


def consume(lab: Lab, count: float, stop: threading.Event) -> int:
    """Consume and acknowledge `count` messages."""
    taken = 0
    with closing(connected(lab)) as connection:
        window = {"activemq.prefetchSize": "200"}
        connection.stomp.subscribe(f"/queue/{QUEUE}", "bench", "client-individual", window)
        while taken < count and not stop.is_set():
            for frame in connection.receive(0.2):
                if frame.cmd == "MESSAGE" and taken < count:
                    connection.stomp.ack(frame.headers["ack"])
                    taken += 1
    return taken


@contextmanager
def agent(lab: Lab, state: Path) -> Iterator[subprocess.Popen[bytes]]:
    parser = [*AGENT, "--config", str(lab.settings_path), "--state-dir", str(state), "sync", "--json"]
    with (state.parent / "agent.log").open("ab") as log:
        process = subprocess.Popen(parser, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def usage(pid: int) -> tuple[float, float]:
    """Present memory in MB, and processor time in seconds."""
    text = Path(f"/proc/{pid}/status").read_text()
    kb = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS"))
    times = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return kb / 1024, (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


def behind(consumed: Sequence[tuple[float, int]], deleted: int, now: float) -> float:
    """The time since as many messages were consumed as are deleted now."""
    at = bisect.bisect_right([count for _, count in consumed], deleted)
    return now - consumed[at][0] if at < len(consumed) else 0.0


def backlog(lab: Lab, depths: Depths, state: Path, count: int) -> None:
    send(lab, count, 20_000, threading.Event())
    wait(lambda: depths.read("paris")[0] >= count, 600)
    consume(lab, count // 100, threading.Event())
    began, most = time.monotonic(), 0.0
    with agent(lab, state) as process:
        while depths.difference():
            most = max(most, usage(process.pid)[0])
            assert time.monotonic() < began + 600
            time.sleep(POLL_S)
        took_s, cpu = time.monotonic() - began, usage(process.pid)[1]
    print(
        f"first connect, {count // 100} of {count} consumed: {took_s:.1f} s, {most:.0f} MB, {cpu:.1f} s CPU", flush=True
    )
    consume(lab, count - count // 100, threading.Event())
    began, most = time.monotonic(), 0.0
    with agent(lab, state) as process:
        while depths.difference():
            most = max(most, usage(process.pid)[0])
            time.sleep(POLL_S)
        took_s = time.monotonic() - began
    print(f"all of them consumed, and deleted by an agent that came after: {took_s:.1f} s, {most:.0f} MB")


def steady(lab: Lab, depths: Depths, state: Path, rate: float, seconds: float) -> None:
    stop = threading.Event()
    with agent(lab, state) as process:
        wait((state / "sync.json").exists, 30)
        base = {name: depths.read(name)[1] for name in depths.wires}
        tasks = (
            threading.Thread(target=send, args=(lab, int(rate * seconds), rate, stop)),
            threading.Thread(target=consume, args=(lab, float("inf"), stop)),
        )
        for task in tasks:
            task.start()
        consumed: list[tuple[float, int]] = [(time.monotonic(), 0)]
        lags, memory, began, cpu = [], [], time.monotonic(), usage(process.pid)[1]
        while time.monotonic() < began + seconds:
            deleted = depths.read("paris")[1] - base["paris"]
            lags.append(behind(consumed, deleted, time.monotonic()))
            consumed.append((time.monotonic(), depths.read("london")[1] - base["london"]))
            memory.append(usage(process.pid)[0])
            time.sleep(POLL_S)
        spent = usage(process.pid)[1] - cpu
        done = consumed[-1][1] / seconds
        stop.set()
        for task in tasks:
            task.join()
        wait(lambda: depths.difference() == 0, 30)
        lag = f"{median(lags):.2f} s (median), {quantiles(lags, n=100)[98]:.2f} s (p99), {max(lags):.2f} s (most)"
        print(f"{done:.0f} consumed/s for {seconds:.0f} s: lag {lag}; {max(memory):.0f} MB; {spent / seconds:.0%} CPU")


def wait(condition: Callable[[], bool], within_s: float) -> None:
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, "not in time"
        time.sleep(POLL_S)


def main() -> None:
    """Measure and print both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--backlog", type=int, default=100_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        options = {"browse_page": 2 * arguments.backlog}
        with Lab.up(Path(folder) / "lab", topology=BROKERSYNC, queues=(QUEUE,), options=options) as lab:
            depths, state = Depths(lab), Path(folder) / "state"
            steady(lab, depths, state, arguments.rate, arguments.seconds)
            backlog(lab, depths, state, arguments.backlog)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
