"""Tests of what brokers that a console manages have in common."""
