"""The findings that topologies and the record share with plans and runs, by name."""

from typing import Final

from dr_ctl.core.findings import catalogue

BOTH_SERVE: Final = catalogue()["DR-ROLE-001"]
COUNTS_DIFFER: Final = catalogue()["DR-PARITY-001"]
NODES_NOT_NAMED: Final = catalogue()["DR-NODE-001"]
NOT_TAKEN_IN: Final = catalogue()["DR-RETURN-008"]
OTHER_SITE_OPEN: Final = catalogue()["DR-ROLE-011"]
QUEUES_PAUSED: Final = catalogue()["DR-QUEUE-001"]
SOURCE_ALIVE: Final = catalogue()["DR-ALIVE-001"]
