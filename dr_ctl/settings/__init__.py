"""Reads the settings file, and reports all its problems at once."""
