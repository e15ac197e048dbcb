"""Labs of artemis-mirror. Option: `link_auto_start` maps a site to whether its link starts at boot."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from dr_ctl_lab.lab.artemis.admin import Admin
from dr_ctl_lab.lab.artemis.create import (
    LIGHT,
    PROTOCOLS,
    artemis,
    create,
    disk,
    forwarding,
    links_at_boot,
    memory,
    only,
    queues,
)
from dr_ctl_lab.lab.artemis.group import FENCED
from dr_ctl_lab.lab.distribution import ARTEMIS
from dr_ctl_lab.lab.state import ADMIN

if TYPE_CHECKING:
    from dr_ctl_lab.lab.spec import BrokerSpec, Options

WARNS: Final = (2, 38)  # the first version that can log acknowledgements without a message


def options(value: Options) -> Options:
    return only(value, ("link_auto_start",), "artemis-mirror")


def profile(text: str) -> str:
    """The start-up options, changed for a quick start."""
    return text.replace("-XX:+UseStringDeduplication ", "").replace("-XX:+UseG1GC", LIGHT)


def configured(xml: str, spec: BrokerSpec) -> str:
    """Change the stock broker.xml to that of one site. The clients' acceptor is closed after a start, so that a site
    that comes back does not serve; that of the mirror stays open. Clients and mirror have different roles."""
    site = spec.site
    warns = "<mirror-ack-manager-warn-unacked>true</mirror-ack-manager-warn-unacked>" if spec.version >= WARNS else ""
    acceptors = f"""<acceptors>
         <acceptor name="clients">tcp://127.0.0.1:{site.ports["clients"]}?protocols={PROTOCOLS};autoStart=false</acceptor>
         <acceptor name="mirror">tcp://127.0.0.1:{site.ports["mirror"]}?protocols=AMQP;amqpCredits=1000;amqpLowCredits=300</acceptor>
      </acceptors>

      <broker-connections>
         <amqp-connection uri="{"#".join(spec.link_uris)}" name="{spec.peer.name}" user="{ADMIN}" password="{spec.peer.admin_password}"
                          retry-interval="500" reconnect-attempts="-1" auto-start="{str(links_at_boot(spec)).lower()}">
            <mirror message-acknowledgements="true" queue-creation="true" queue-removal="true" durable="true" sync="false"
                    address-filter="!dr-ctl."/>
         </amqp-connection>
      </broker-connections>
      {warns}{forwarding(spec)}"""  # noqa: E501 - read as XML
    xml = re.sub(r"<acceptors>.*?</acceptors>", lambda _: acceptors, xml, count=1, flags=re.DOTALL)
    xml = re.sub(
        r'<security-setting match="#">.*?</security-setting>',
        lambda item: re.sub(r'(type="(?!delete)[A-Za-z]+" roles=)"amq"', r'\1"amq,apps"', item.group()),
        xml,
        count=1,
        flags=re.DOTALL,
    )
    xml = re.sub(r"<addresses>", lambda _: f"<addresses>{queues(spec)}", xml, count=1)
    return disk(xml)


KIND: Final = artemis(
    joined="mirror each other",
    distribution=ARTEMIS,
    ports=("http", "clients", "mirror"),
    options=options,
    create=partial(create, memory=memory, profile=profile, configured=configured),
    admin=Admin,
    group=FENCED,
)
