"""The settings file, all its problems at once."""
