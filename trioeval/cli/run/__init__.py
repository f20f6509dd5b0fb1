"""The commands that run a suite."""
