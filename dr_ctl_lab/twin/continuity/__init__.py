"""A twin whose sites are joined by the continuity plugin."""
