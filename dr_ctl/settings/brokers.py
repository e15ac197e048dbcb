"""Settings of a broker that a console manages: at one address, or at those of its nodes."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from dr_ctl.settings.model import Broker
from dr_ctl.settings.parts import HttpAddress, Names, Part, Seconds, Secret, StompAddress, listed

LEAST: Final = 2


class Node(Part):
    """One process of a broker that has several. Which of them is active is found at every reading."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$", description="what the node is called")
    jolokia: HttpAddress = Field(description="its management address")
    stomp: StompAddress | None = Field(
        default=None, description="its address of a client listener, for test logins and the probe"
    )
    username: str | None = Field(default=None, description="its login for both; without: the broker's")
    password: Secret | None = Field(default=None, description="its password for both; without: the broker's")
    broker: str | None = Field(default=None, description="the broker's name at that node; without: found out")


class Grouped(Broker):
    """A broker that may be a group of processes of which one is active."""

    nodes: Annotated[tuple[Node, ...], BeforeValidator(listed)] = Field(
        default=(), description="the nodes of a broker that has several, instead of its `jolokia` and `stomp`"
    )
    takeover: Seconds = Field(
        default="90s",
        validate_default=True,
        description="of a broker with `nodes`: the longest that they may need until another one is active",
    )

    @field_validator("nodes")
    @classmethod
    def _several(cls, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        names = [node.name for node in nodes]
        if len(nodes) < LEAST:
            raise ValueError("has fewer than two: a single one is the broker's own `jolokia` and `stomp`")
        if again := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"a second node is called {again[0]}")
        return nodes


def console_or_nodes(schema: dict[str, Any]) -> None:
    """The loader tells this of a file; the schema of a broker that needs a console has to say it too."""
    schema["oneOf"] = [{"required": ["jolokia"]}, {"required": ["nodes"]}]


class ManagedBroker(Broker):
    """A broker that is asked at its console, or, where none is needed, at a listener of clients."""

    needs_console: ClassVar[bool] = True

    jolokia: HttpAddress | None = Field(
        default=None,
        validate_default=True,
        description="management address, `http` or `https`; required where there are no `nodes`",
    )
    stomp: StompAddress | None = Field(
        default=None,
        description="`stomp://` or `stomp+ssl://` address of a client listener: test logins and the probe go there. "
        "Without it fences are shown by flag only, and a finding says so",
    )
    username: str = Field(description="login for both")
    password: Secret = Field(description="password for both: a secret, see below")
    clients: Names = Field(min_length=1, description="names of the listeners that clients use")
    broker: str | None = Field(default=None, description="the broker's own name; without: found out")

    @field_validator("jolokia", "stomp")
    @classmethod
    def _managed(cls, address: str | None, info: ValidationInfo) -> str | None:
        """Nodes that are wrong are not in the data: nothing is said of what they stand for."""
        nodes = info.data.get("nodes", "nodes" in cls.model_fields)
        if nodes and nodes is not True and address is not None:
            raise ValueError("stands beside `nodes`: each node has its own")
        if not nodes and address is None and info.field_name == "jolokia" and cls.needs_console:
            raise PydanticCustomError("missing", "is missing")
        return address

    @property
    def processes(self) -> Sequence[tuple[str, str | None, str | None]]:
        """Name, management and STOMP address of each node; a single one has no name."""
        nodes = self.nodes if isinstance(self, Grouped) else ()
        return [(node.name, node.jolokia, node.stomp) for node in nodes] or [("", self.jolokia, self.stomp)]

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(address for _, *both in self.processes for address in both if address is not None)
