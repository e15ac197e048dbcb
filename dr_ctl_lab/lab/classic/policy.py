"""The `jolokia-access.xml` of a broker: what its management may be asked to do."""

from collections.abc import Sequence
from typing import Final

HARDENED: Final = "hardened"
# All that the distributions before allowed.
OPEN: Final = """<?xml version="1.0" encoding="UTF-8"?>
<restrict>
  <cors><strict-checking/></cors>
  <commands><command>read</command><command>list</command><command>version</command><command>search</command></commands>
  <allow><mbean><name>org.apache.activemq:*</name><attribute>*</attribute><operation>*</operation></mbean></allow>
</restrict>
"""

# By the names alone, as in the distributions: an operation that is asked for with its signature passes.
_BROKER: Final = (
    "terminateJVM", "stop", "stopGracefully", "restart", "gc", "addConnector", "removeConnector",
    "addNetworkConnector", "removeNetworkConnector", "addQueue", "removeQueue", "addTopic", "removeTopic",
    "createDurableSubscriber", "destroyDurableSubscriber",
)  # fmt: skip
_DESTINATION: Final = (
    "purge", "removeMessage", "removeMatchingMessages", "copyMessageTo", "copyMatchingMessagesTo", "moveMessageTo",
    "moveMatchingMessagesTo", "retryMessage", "retryMessages", "sendTextMessage", "pause", "resume",
)  # fmt: skip


def policy(wanted: str) -> str:
    """Give the text of the file: for "hardened" one that denies what those of 5.19.7 and 6.2.6 name."""
    return _hardened() if wanted == HARDENED else wanted


def _hardened() -> str:
    """POST only, and nothing that makes, moves or destroys; connectors can still be stopped and started.

    Denials count only among commands that are allowed, so `exec` has to be one of them: the distributions' own file
    lacks it, and denies nothing.
    """
    broker = "org.apache.activemq:type=Broker,brokerName=*"
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<restrict>
  <http><method>post</method></http>
  <cors><strict-checking/></cors>
  <commands>
    <command>read</command><command>list</command><command>version</command><command>search</command>
    <command>exec</command>
  </commands>
  <deny>
    {_denied(broker, _BROKER)}
    {_denied(f"{broker},destinationType=*,destinationName=*", _DESTINATION)}
    <mbean>
      <name>{broker},connector=networkConnectors,networkConnectorName=*</name>
      <attribute>Password</attribute><attribute>RemotePassword</attribute>
    </mbean>
  </deny>
</restrict>
"""


def _denied(bean: str, operations: Sequence[str]) -> str:
    text = "".join(f"<operation>{name}</operation>" for name in operations)
    return f"<mbean><name>{bean}</name>{text}</mbean>"
