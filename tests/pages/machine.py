"""A machine of its own for what a page types, and a shell there; and two Artemis brokers that stand on it."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from dr_ctl_lab.lab import distribution
from tests.broker.driving import until
from tests.topologies.pages import ACCEPTORS, RIGHTS, ROOT, blocks, exchanged, in_the_place_of, with_user

# What the pages call placeholders the machine has as it stands there, ports and passwords too: the hosts are addresses
# of its loopback. Only the listeners at 0.0.0.0, which two hosts of one machine would share, are each at its host.
HOSTS: Final = {"london-1": "127.0.1.1", "paris-1": "127.0.1.2"}
BROKERS: Final = Path("var/lib/brokers")
STEP_S: Final = 600


def sections(page: str) -> dict[str, list[str]]:
    """The blocks that are typed into a shell, by the heading above them."""
    parts = re.split(r"^## (.+)\n", (ROOT / "docs" / page).read_text("utf-8"), flags=re.MULTILINE)
    named = zip(parts[1::2], parts[2::2], strict=True)
    return {title: re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for title, text in named}


class Machine:
    def __init__(self, init: int) -> None:
        self.root, self._init, self._folder = Path(f"/proc/{init}/root"), init, str(ROOT)

    def type(self, block: str, *, outside: bool = False) -> str:
        """Type lines into root's shell, which stays in the folder where they leave it; gives what it shows. `outside`:
        they reach the networks of this machine, where the package registries are."""
        namespaces = ["mount", "root", "pid", "ipc", "uts", *([] if outside else ["net"])]
        words = ["nsenter", f"--target={self._init}", *(f"--{name}" for name in namespaces), f"--wd={self.root}"]
        lines = f"cd {self._folder}\n{block}\npwd >/run/folder"
        done = subprocess.run(
            [*words, "bash", "-ec", lines],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=STEP_S,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}"
        self._folder = (self.root / "run/folder").read_text("utf-8").strip()
        return done.stdout

    def create_brokers(self) -> None:
        """Two brokers as `artemis create` leaves them."""
        artemis = distribution.obtain() / "bin" / "artemis"
        for host in HOSTS:
            login = "--user admin --password admin --role amq --require-login"
            self.type(f"{artemis} create /{BROKERS}/{host} --name {host} --host {host} --http-host {host} {login}")

    def prepare_brokers(self) -> None:
        """What the pages leave to an editor: the blocks of artemis-mirror.md, pasted. And the restart."""
        page = blocks("artemis-mirror.md")
        for host in HOSTS:
            path = self.root / BROKERS / host / "etc" / "broker.xml"
            xml = path.read_text("utf-8")
            with_user(xml, path.parents[1], page)
            listeners = page[ACCEPTORS] if host == "london-1" else exchanged(page[ACCEPTORS])
            xml = in_the_place_of(r"<acceptors>.*</acceptors>", listeners.replace("0.0.0.0", host), xml)
            rights = page[RIGHTS] + page["the rights of dr-ctl"]
            path.write_text(
                in_the_place_of(r'<security-setting match="#">.*?</security-setting>', rights, xml), "utf-8"
            )
            self.type(f"systemd-run --unit={host} /{BROKERS}/{host}/bin/artemis run")
        for host in HOSTS:
            self.type(f"curl -sS --output /dev/null --retry 99 --retry-connrefused --retry-delay 1 http://{host}:8161/")

    def client(self, verb: str, count: int) -> None:
        """A client of London sends or receives as many messages."""
        where = "--url tcp://london-1:61613 --user admin --password admin --destination orders.in"
        told = self.type(f"/{BROKERS}/london-1/bin/artemis {verb} {where} --message-count {count}")
        assert re.search(rf"(Produced|Consumed): {count} messages", told), told


@contextmanager
def machine(log: Path) -> Iterator[Machine]:
    """One that has booted. Skips where nobody may have one here."""
    mounted = [row.split() for row in Path("/proc/mounts").read_text("utf-8").splitlines()]
    group = Path(next((row[1] for row in mounted if row[2] == "cgroup2"), "/")) / f"dr-ctl-{uuid4().hex[:8]}"
    hosts = [word for host in HOSTS.items() for word in host]
    with log.open("wb") as told:
        words = ["sh", str(Path(__file__).with_suffix(".sh")), str(group), *hosts]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=told, stderr=told)
    try:
        until(lambda: process.poll() is not None or _booted(process.pid), why="systemd is started")
        if process.poll() is not None:
            reason = f"no machine of its own: {log.read_text('utf-8').strip()}"
            assert not os.environ.get("CI"), reason
            pytest.skip(reason)
        own = Machine(*_children(process.pid))
        yield own
    finally:
        process.kill()  # and with it all that runs there
        process.wait()
        until(lambda: not _left(group), why=f"{group} is removed")


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()]


def _booted(pid: int) -> bool:
    """Whether its systemd takes commands."""
    return any(Path(f"/proc/{child}/root/run/systemd/private").exists() for child in _children(pid))


def _left(group: Path) -> bool:
    subprocess.run(
        ["find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"], capture_output=True, check=False
    )
    return group.exists()
