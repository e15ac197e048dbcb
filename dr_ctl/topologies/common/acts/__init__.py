"""Acts of the verbs, their proofs and their undoing; a file a verb, as in `drafts`."""

from dr_ctl.topologies.common.acts import activate, canary, fence, proving, quarantine, quiesce, unfence
from dr_ctl.topologies.common.acts.plain import nothing, put_back

__all__ = ("activate", "canary", "fence", "nothing", "proving", "put_back", "quarantine", "quiesce", "unfence")
