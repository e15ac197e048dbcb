"""Creation, start and settings of an Artemis broker of a lab."""

from __future__ import annotations

import os
import re
import subprocess
from functools import partial
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from dr_ctl.core.errors import EnvironmentFault, UsageError
from dr_ctl_lab.lab import daemons
from dr_ctl_lab.lab.artemis.admin import jolokia
from dr_ctl_lab.lab.artemis.group import grouped
from dr_ctl_lab.lab.clients.client import FORWARDED, Proto, address_of, is_subscription, name_of
from dr_ctl_lab.lab.spec import Kind
from dr_ctl_lab.lab.state import ADMIN, APP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from typing import Any

    from dr_ctl_lab.lab.spec import BrokerSpec, Options
    from dr_ctl_lab.lab.state import SiteState

CREATE_TIMEOUT_S = 60
LOGS = ("log/artemis.log", "log/out.txt")
PLAIN_QUEUE = re.compile(r"[A-Za-z0-9._-]+(::[A-Za-z0-9._-]+)?")
CLIENT_PROTOCOLS = (Proto.STOMP, Proto.AMQP, Proto.CORE, Proto.OPENWIRE, Proto.MQTT)
PROTOCOLS = ",".join(protocol.name for protocol in CLIENT_PROTOCOLS)
LIGHT = " ".join(daemons.LIGHT)
# Variables of the caller's environment that the brokers must not see.
FOREIGN = {"JAVA_ARGS", "JAVA_ARGS_APPEND", "DEBUG_ARGS", "ARTEMIS_HOME", "ARTEMIS_INSTANCE", "ARTEMIS_DATA_DIR"}


def memory(spec: BrokerSpec) -> str:
    """The heap size; a queue takes a tenth of a megabyte."""
    return f"{512 + len(spec.queues) // 8}M"


def create(
    home: Path,
    instance: Path,
    spec: BrokerSpec,
    *,
    memory: Callable[[BrokerSpec], str] | None,
    profile: Callable[[str], str],
    configured: Callable[[str, BrokerSpec], str],
    clients_role: str = "apps",
) -> None:
    """Create the broker's instance directory. `memory` returns the heap size, where `artemis create` has that option;
    `profile` and `configured` change the start-up options and broker.xml. Users of the kind have a role of the same
    name. EnvironmentFault where it fails."""
    site = spec.site
    argv = [
        str(home / "bin" / "artemis"), "create", str(instance), "--silent", "--name", site.broker,
        "--user", ADMIN, "--password", "replaced", "--role", "amq", "--require-login",
        "--host", "127.0.0.1", "--http-host", "127.0.0.1", "--http-port", str(site.ports["http"]), "--relax-jolokia",
        "--default-port", str(site.ports["clients"]), "--no-autotune", "--nio",
        *(("--java-memory", memory(spec)) if memory is not None else ()),
        "--no-hornetq-acceptor", "--no-mqtt-acceptor", "--no-amqp-acceptor", "--no-stomp-acceptor",
    ]  # fmt: skip
    try:
        env = {**environment(), "JAVA_ARGS": LIGHT}
        done = subprocess.run(argv, capture_output=True, text=True, timeout=CREATE_TIMEOUT_S, check=False, env=env)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFault(f"{site.broker}: artemis create: {error}") from error
    if done.returncode != 0:
        raise EnvironmentFault(f"{site.broker}: artemis create: {(done.stdout + done.stderr).strip()[-600:]}")
    etc = instance / "etc"
    _write(
        etc / "artemis-users.properties",
        _properties({ADMIN: site.admin_password, APP: site.app_password, **site.others}),
    )
    _write(
        etc / "artemis-roles.properties",
        _properties({"amq": ADMIN, clients_role: APP, **{user: user for user in site.others}}),
    )
    stock = (etc / "artemis.profile").read_text()
    _write(etc / "artemis.profile", profile(re.sub(r"-Xms\d+[MG]", "-Xms128M", stock)))
    xml = grouped(configured((etc / "broker.xml").read_text(), spec), spec)
    _write(etc / "broker.xml", spec.edit(xml) if spec.edit else xml)


def start(instance: Path) -> daemons.Process:
    """Launch the broker; return without waiting for it."""
    return daemons.launch(
        [str(instance / "bin" / "artemis"), "run"], cwd=instance, log=instance / LOGS[-1], env=environment()
    )


def settings(site: SiteState, secret: str) -> dict[str, Any]:
    return {
        "name": site.pair,
        "jolokia": jolokia(site),
        "stomp": str(site.stomp),
        "username": ADMIN,
        "password": {"file": secret},
        "clients": ["clients"],
        "mirror": ["mirror"],
    }


def only(options: Options, known: Iterable[str], topology: str) -> Options:
    """Return the options. UsageError where the topology does not have one."""
    if unknown := sorted(set(options) - set(known)):
        raise UsageError(f"a lab of {topology} has no option {', '.join(unknown)}")
    return options


def links_at_boot(spec: BrokerSpec) -> bool:
    starts: bool = spec.options.get("link_auto_start", {}).get(spec.site.name, True)
    return starts


def plain(name: str) -> bool:
    """Say whether broker.xml can hold the name."""
    return PLAIN_QUEUE.fullmatch(name) is not None


def queues(spec: BrokerSpec) -> str:
    """The queues of broker.xml, shared subscriptions included, and the addresses for MQTT."""
    kinds = {name: "multicast" if is_subscription(name) else "anycast" for name in spec.queues if plain(name)}
    return "".join(
        f"\n         <address name={quoteattr(address_of(name))}>"
        f"<{kind}><queue name={quoteattr(name_of(name))}/></{kind}></address>"
        for name, kind in kinds.items()
    ) + "".join(
        f"\n         <address name={quoteattr(FORWARDED + name)}><multicast/></address>" for name in spec.forwards
    )


def forwarding(spec: BrokerSpec) -> str:
    """Diverts from the addresses for MQTT into the queues."""
    diverts = "".join(
        f"""
         <divert name={quoteattr(FORWARDED + name)}>
            <address>{FORWARDED}{name}</address>
            <forwarding-address>{name}</forwarding-address>
            <exclusive>true</exclusive>
            <routing-type>ANYCAST</routing-type>
         </divert>"""
        for name in spec.forwards
    )
    return f"""

      <diverts>{diverts}
      </diverts>"""


def disk(xml: str) -> str:
    """Let the broker measure the disk at once, and use nearly all of it."""
    xml = re.sub(r"<disk-scan-period>\d+<", "<disk-scan-period>200<", xml)
    return re.sub(r"<max-disk-usage>\d+<", "<max-disk-usage>99<", xml)


def lacks(version: tuple[int, ...]) -> frozenset[Proto]:
    """Protocols without a usable client: the distributions before 2.40 lack a library of OpenWire's client."""
    return frozenset({Proto.OPENWIRE} if version < (2, 40) else ())


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in FOREIGN}


def _properties(options: Mapping[str, str]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in options.items())


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)  # it has passwords


# The common part of all kinds of Artemis.
artemis = partial(
    Kind,
    link_target="mirror",
    start=start,
    settings=settings,
    logs=LOGS,
    links_at_boot=links_at_boot,
    made_at_once=plain,
    protocols=CLIENT_PROTOCOLS,
    lacks=lacks,
    forwards=lambda name: plain(name) and not is_subscription(name),
)
