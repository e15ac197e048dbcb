"""Diverts and core bridges between two sites of Artemis, a queue each, and the ids of what was processed."""
