"""Typed events and who listens to them."""
