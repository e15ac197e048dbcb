"""Settings of two sites of Classic brokers that know nothing of each other: producers write each message to both."""

from typing import ClassVar, Literal

from pydantic import Field

from dr_ctl.settings.model import Settings, Site, SiteName
from dr_ctl.settings.parts import IdStore, Names
from dr_ctl.settings.topologies.classic import AgentAccess, ClassicBroker


class FanoutBroker(ClassicBroker):
    """A broker of a pair that producers write to side by side."""

    producers: Names = Field(
        min_length=1,
        description="names of the transport connectors that producers use; they are open at both sites, and a fence "
        "leaves them so",
    )
    sync: AgentAccess | None = Field(
        default=None,
        description="how dr-ctl itself reaches this broker to read messages that the other site lacks, and to put "
        "those there that this one lacks",
    )


class ClassicFanout(Settings):
    """An installation whose producers write to both sites."""

    apart: ClassVar = (("clients", "producers"),)

    topology: Literal["classic-fanout"]
    sites: dict[SiteName, Site[FanoutBroker]]
    id_header: str = Field(
        default="UniqueMessageID",
        pattern=r"^[A-Za-z_$][A-Za-z0-9_$]*$",
        description="the property by which producers name a message, the same at both sites: each broker gives it a "
        "JMSMessageID of its own",
    )
    ids: IdStore | None = Field(
        default=None,
        description="the store of processed ids that the consumers of both sites share, where dr-ctl can read it",
    )


SETTINGS = ClassicFanout
