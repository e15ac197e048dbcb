"""The estimate: from a history to figures and a verdict."""
