"""The settings of a topology that only tests register: its brokers are folders."""

from typing import Literal

from pydantic import Field

from dr_ctl.settings.model import Broker, Settings, Site, SiteName


class FolderBroker(Broker):
    """A broker that is a folder."""

    folder: str = Field(description="where it lies")


class Folders(Settings):
    topology: Literal["folders"]
    sites: dict[SiteName, Site[FolderBroker]]
