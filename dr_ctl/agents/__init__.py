"""What runs for a long time beside the operator: the monitor."""
