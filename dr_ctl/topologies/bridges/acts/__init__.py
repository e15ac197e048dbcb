"""Acts of the verbs that diverts and bridges run in their own way; a file a verb, as in `drafts`."""

from dr_ctl.topologies.bridges.acts import activate, fence, reinstate, shipping, trim, unfence

__all__ = ("activate", "fence", "reinstate", "shipping", "trim", "unfence")
