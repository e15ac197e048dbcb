"""The plans of each verb: the exact calls, and the calls that undo them. Pure; a file a verb, as in `acts`."""

from dr_ctl.topologies.common.drafts import activate, canary, fence, proving, quarantine, quiesce, unfence
from dr_ctl.topologies.common.drafts.nothing import nothing

__all__ = ("activate", "canary", "fence", "nothing", "proving", "quarantine", "quiesce", "unfence")
