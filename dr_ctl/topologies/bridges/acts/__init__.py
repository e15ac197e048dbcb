"""What is done for each verb that diverts and bridges do in their own way; a file a verb, as in `drafts`."""

from dr_ctl.topologies.bridges.acts import activate, fence, reinstate, release, shipping, trim

__all__ = ("activate", "fence", "reinstate", "release", "shipping", "trim")
