"""Names of management beans: building, quoting, taking apart. Names are compared by their parts, never as text:
versions differ in the order of the keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

DOMAIN: Final = "org.apache.activemq.artemis"
RUNTIME: Final = "java.lang:type=Runtime"
SECURITY: Final = "hawtio:type=security,area=jmx,name=ArtemisJMXSecurity"
_ESCAPED: Final = {'"': '\\"', "*": "\\*", "?": "\\?", "\\": "\\\\", "\n": "\\n"}
_UNESCAPED: Final = {'"': '"', "*": "*", "?": "?", "\\": "\\", "n": "\n"}
_PART: Final = re.compile(r'([^=,:]+)=("(?:[^"\\]|\\.)*"|[^,"]*)(?:,|$)', re.DOTALL)


def quote(value: str) -> str:
    """Quote a value as `javax.management.ObjectName.quote` does."""
    return '"' + "".join(_ESCAPED.get(letter, letter) for letter in value) + '"'


def unquote(value: str) -> str:
    """Undo `quote`; a value that is not quoted stays as it is."""
    if not (value.startswith('"') and value.endswith('"') and len(value) > 1):
        return value
    return re.sub(r"\\(.)", lambda found: _UNESCAPED.get(found[1], found[1]), value[1:-1], flags=re.DOTALL)


def parts(name: str) -> Mapping[str, str]:
    """Take a bean's name apart into its keys, values unquoted; raises ValueError if it is not a name."""
    domain, colon, keys = name.partition(":")
    found = _PART.findall(keys)
    if not (domain and colon and found) or "".join(f"{key}={value}," for key, value in found)[:-1] != keys:
        raise ValueError(f"not the name of a bean: {name!r}")
    return {key: unquote(value) for key, value in found}


def server(broker: str) -> str:
    return f"{DOMAIN}:broker={quote(broker)}"


def acceptor(broker: str, name: str) -> str:
    return f"{server(broker)},component=acceptors,name={quote(name)}"


def broker_connection(broker: str, name: str) -> str:
    return f"{server(broker)},component=broker-connections,name={quote(name)}"


def queue(broker: str, address: str, routing: str, name: str) -> str:
    return (
        f"{server(broker)},component=addresses,address={quote(address)},subcomponent=queues,"
        f"routing-type={quote(routing)},queue={quote(name)}"
    )


ANY_SERVER: Final = f"{DOMAIN}:broker=*"


def all_acceptors(broker: str) -> str:
    return f"{server(broker)},component=acceptors,name=*"


def all_broker_connections(broker: str) -> str:
    return f"{server(broker)},component=broker-connections,name=*"


def documents(broker: str) -> str:
    """Every queue of dr-ctl's own: what it remembers at a broker stands in their `User`."""
    return (
        f'{server(broker)},component=addresses,address="dr-ctl.*",subcomponent=queues,routing-type=*,queue="dr-ctl.*"'
    )


def all_addresses(broker: str) -> str:
    return f"{server(broker)},component=addresses,address=*"


def outflows(broker: str) -> str:
    """Every store-and-forward queue of a mirror."""
    name = '"$ACTIVEMQ_ARTEMIS_MIRROR_*"'
    return f"{server(broker)},component=addresses,address={name},subcomponent=queues,routing-type=*,queue={name}"


def all_queues(broker: str) -> str:
    return f"{server(broker)},component=addresses,address=*,subcomponent=queues,routing-type=*,queue=*"
