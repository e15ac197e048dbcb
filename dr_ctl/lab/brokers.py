"""One Artemis broker of a lab: created, configured for mirroring, started, waited for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from dr_ctl.core.errors import BrokerError, EnvironmentFault
from dr_ctl.lab import processes
from dr_ctl.lab.state import ADMIN, APP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from dr_ctl.lab.admin import Admin
    from dr_ctl.lab.kinds import Kind
    from dr_ctl.lab.state import SiteState

CREATE_TIMEOUT_S = 60
POLL_S = 0.1
PLAIN_QUEUE = re.compile(r"[A-Za-z0-9._-]+")
STACK_LINE = re.compile(r"\s+(at |\.\.\. \d+ more)|\*+$")
# Several brokers share a small machine and live for minutes: the collector with the fewest threads, and only the quick
# compiler. A start takes half the time with it, and 300 messages per second two thirds of the processor.
LIGHT = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# What the environment of the caller must not decide for the brokers.
FOREIGN = {"JAVA_ARGS", "JAVA_ARGS_APPEND", "DEBUG_ARGS", "ARTEMIS_HOME", "ARTEMIS_INSTANCE", "ARTEMIS_DATA_DIR"}


@dataclass(frozen=True, slots=True)
class Make:
    """How a site's broker is to be made; `link_port` is the proxy's, on the way to `peer`."""

    site: SiteState
    peer: SiteState
    link_port: int
    queues: Sequence[str]
    link_auto_start: bool = True
    edit: Callable[[str], str] | None = None

    @property
    def plain_queues(self) -> list[str]:
        """Those whose names need no management call: they stand in broker.xml."""
        return [name for name in self.queues if PLAIN_QUEUE.fullmatch(name)]


def create(home: Path, instance: Path, make: Make, kind: Kind) -> None:
    """Make the broker's instance directory; nothing runs after it. EnvironmentFault where `artemis create` fails."""
    site = make.site
    argv = [
        str(home / "bin" / "artemis"), "create", str(instance), "--silent", "--name", site.broker,
        "--user", ADMIN, "--password", "replaced", "--role", "amq", "--require-login",
        "--host", "127.0.0.1", "--http-host", "127.0.0.1", "--http-port", str(site.http), "--relax-jolokia",
        "--default-port", str(site.clients), "--no-autotune", "--nio", *kind.create_options,
        "--no-hornetq-acceptor", "--no-mqtt-acceptor", "--no-amqp-acceptor", "--no-stomp-acceptor",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=CREATE_TIMEOUT_S,
            check=False,
            env={**environment(), "JAVA_ARGS": LIGHT},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFault(f"{site.broker}: artemis create: {error}") from error
    if done.returncode != 0:
        raise EnvironmentFault(f"{site.broker}: artemis create: {(done.stdout + done.stderr).strip()[-600:]}")
    etc = instance / "etc"
    _write(etc / "artemis-users.properties", f"{ADMIN} = {site.admin_password}\n{APP} = {site.app_password}\n")
    _write(etc / "artemis-roles.properties", f"amq = {ADMIN}\napps = {APP}\n")
    profile = (etc / "artemis.profile").read_text()
    _write(etc / "artemis.profile", kind.profile(re.sub(r"-Xms\d+[MG]", "-Xms128M", profile)))
    xml = kind.configured((etc / "broker.xml").read_text(), make)
    _write(etc / "broker.xml", make.edit(xml) if make.edit else xml)
    if kind.jar is not None:
        (instance / "lib").mkdir(exist_ok=True)
        shutil.copy(kind.jar, instance / "lib")


def profile(text: str) -> str:
    """The start-up options of a mirrored broker, made light."""
    return text.replace("-XX:+UseStringDeduplication ", "").replace("-XX:+UseG1GC", LIGHT)


def configured(xml: str, make: Make) -> str:
    """Turn the stock broker.xml into that of one side of a mirrored pair.

    The clients' acceptor boots closed, so that a site that comes back never serves by itself; the mirror has its own,
    which stays open through a fence. Clients have another role than the mirror, so that they can be kept out alone.
    """
    site = make.site
    door = (
        f'\n         <acceptor name="admin-door">tcp://127.0.0.1:{site.door}?protocols=CORE,AMQP,STOMP</acceptor>'
        if site.door
        else ""
    )
    queues = "".join(
        f"\n         <address name={quoteattr(name)}><anycast><queue name={quoteattr(name)}/></anycast></address>"
        for name in make.plain_queues
    )
    acceptors = f"""<acceptors>
         <acceptor name="clients">tcp://127.0.0.1:{site.clients}?protocols=CORE,AMQP,STOMP;autoStart=false</acceptor>
         <acceptor name="mirror">tcp://127.0.0.1:{site.mirror}?protocols=AMQP;amqpCredits=1000;amqpLowCredits=300</acceptor>{door}
      </acceptors>

      <broker-connections>
         <amqp-connection uri="tcp://127.0.0.1:{make.link_port}" name="{make.peer.name}" user="{ADMIN}" password="{make.peer.admin_password}"
                          retry-interval="500" reconnect-attempts="-1" auto-start="{str(make.link_auto_start).lower()}">
            <mirror message-acknowledgements="true" queue-creation="true" queue-removal="true" durable="true" sync="false"
                    address-filter="!dr-ctl."/>
         </amqp-connection>
      </broker-connections>
      <mirror-ack-manager-warn-unacked>true</mirror-ack-manager-warn-unacked>"""  # noqa: E501 - read as XML
    xml = re.sub(r"<acceptors>.*?</acceptors>", lambda _: acceptors, xml, count=1, flags=re.DOTALL)
    xml = re.sub(
        r'<security-setting match="#">.*?</security-setting>',
        lambda found: re.sub(r'(type="(?!delete)[A-Za-z]+" roles=)"amq"', r'\1"amq,apps"', found.group()),
        xml,
        count=1,
        flags=re.DOTALL,
    )
    xml = re.sub(r"<addresses>", lambda _: f"<addresses>{queues}", xml, count=1)
    return re.sub(r"<max-disk-usage>\d+<", "<max-disk-usage>99<", xml)


def start(instance: Path, site: SiteState) -> SiteState:
    """Launch the broker; it is not up when this returns."""
    process = processes.launch(
        [str(instance / "bin" / "artemis"), "run"], cwd=instance, log=instance / "log" / "out.txt", env=environment()
    )
    return replace(site, process=process)


def wait_until(what: str, true: Callable[[], bool], instance: Path, site: SiteState, until: float) -> None:
    """Wait for something of a running broker; EnvironmentFault, with the end of its log, where it does not come."""
    because = "not yet"
    while True:
        if site.process is None or not site.process.alive():
            because = "the broker ended"
            break
        try:
            if true():
                return
        except BrokerError as error:
            because = str(error)
        if time.monotonic() > until:
            break
        time.sleep(POLL_S)
    raise EnvironmentFault(f"{site.broker}: {what} did not come true: {because}\n{log_tail(instance)}")


def wait_active(instance: Path, site: SiteState, admin: Admin, until: float) -> None:
    """Wait until the broker says over its management that it is active."""
    wait_until("active", admin.active, instance, site, until)


def log_tail(instance: Path, lines: int = 15) -> str:
    """Quote the end of the broker's logs; of an exception its words, not its stack."""
    return "\n".join(f"    {line}" for line in list(_log_lines(instance))[-lines:])


def _log_lines(instance: Path) -> Iterator[str]:
    for name in ("artemis.log", "out.txt"):
        path = instance / "log" / name
        if path.is_file():
            text = path.read_text(errors="replace")
            yield from (line for line in text.splitlines() if line.strip() and not STACK_LINE.match(line))


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in FOREIGN}


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)  # passwords stand in it
