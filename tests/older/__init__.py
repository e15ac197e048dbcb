"""What the version before wrote, and the commands of today on it."""
