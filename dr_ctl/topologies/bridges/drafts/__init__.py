"""Plans for each verb that diverts and bridges do in their own way. Pure; a file a verb, as in `acts`."""

from dr_ctl.topologies.bridges.drafts import activate, fence, reinstate, shipping, trim, unfence

__all__ = ("activate", "fence", "reinstate", "shipping", "trim", "unfence")
