"""Other people's programs: secrets and hooks."""
