"""A run's journal turned into one HTML page."""
