"""The `jolokia-access.xml` of a broker: the access policy of its management."""

from collections.abc import Sequence
from typing import Final

HARDENED: Final = "hardened"
# The policy of earlier distributions.
OPEN: Final = """<?xml version="1.0" encoding="UTF-8"?>
<restrict>
  <cors><strict-checking/></cors>
  <commands><command>read</command><command>list</command><command>version</command><command>search</command></commands>
  <allow><mbean><name>org.apache.activemq:*</name><attribute>*</attribute><operation>*</operation></mbean></allow>
</restrict>
"""

# Names alone, as in the distributions: a request with a signature passes.
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
    """The text of the file; "hardened" denies what the files of 5.19.7 and 6.2.6 deny."""
    return _hardened() if wanted == HARDENED else wanted


def _hardened() -> str:
    """POST only; operations that create, move or delete are denied. Connectors can still be stopped and started.

    Only allowed commands are denied by name, so `exec` must be among them: the distributions' file lacks it, and denies
    no operation.
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
