"""Policies of a Classic broker's console: an open one, and the one of releases since 5.19.7."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from dr_ctl_lab.twin.names import is_pattern, keys_of

BROKER, DESTINATION, CONNECTOR, RUNTIME = "Broker", "Destination", "NetworkConnector", "Runtime"


@dataclass(frozen=True, slots=True)
class Policy:
    """Forbidden operations and attributes by kind of bean; names may have a `*`. A name without a signature does not
    forbid a request that has one."""

    post_only: bool
    operations: dict[str, tuple[str, ...]]
    attributes: dict[str, tuple[str, ...]]

    def forbids_operation(self, bean: str, operation: str) -> bool:
        """Say whether the policy forbids the operation. On a pattern of beans every operation is forbidden."""
        return is_pattern(bean) or _named(operation, self.operations.get(_kind(bean), ()))

    def forbids_attribute(self, bean: str, name: str) -> bool:
        return _named(name, self.attributes.get(_kind(bean), ()))


def _named(name: str, among: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, item) for item in among)


def _kind(bean: str) -> str:
    keys = keys_of(bean)
    if keys[""] != "org.apache.activemq":
        return keys.get("type", "")
    if "destinationType" in keys:
        return DESTINATION
    return {"networkConnectors": CONNECTOR, "clientConnectors": ""}.get(keys.get("connector", "none"), BROKER)


OPEN: Final = Policy(post_only=False, operations={}, attributes={})
HARDENED: Final = Policy(
    post_only=True,
    operations={
        BROKER: (
            "stop", "stopGracefully", "restart", "gc", "terminateJVM", "addConnector", "removeConnector",
            "addNetworkConnector", "removeNetworkConnector", "addQueue", "removeQueue", "addTopic", "removeTopic",
            "createDurableSubscriber", "destroyDurableSubscriber", "set*",
        ),
        DESTINATION: (
            "purge", "removeMessage", "removeMatchingMessages", "copy*", "move*", "retry*", "sendTextMessage*",
            "pause", "resume", "removeMessageGroup*", "removeAllMessageGroups", "destroy",
        ),
        CONNECTOR: ("set*",),
    },
    attributes={
        CONNECTOR: ("Password", "RemotePassword"),
        RUNTIME: ("SystemProperties", "InputArguments", "ClassPath", "BootClassPath", "LibraryPath"),
    },
)  # fmt: skip
