"""What the settings say of a broker that is a folder."""

from __future__ import annotations

from typing import Literal

from dr_ctl.settings.model import Broker, Settings, Site, SiteName


class FolderBroker(Broker):
    """One broker: where it lies."""

    folder: str


class Folders(Settings):
    """An installation on a file system."""

    topology: Literal["folders"]
    sites: dict[SiteName, Site[FolderBroker]]


SETTINGS = Folders
