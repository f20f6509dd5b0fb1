"""Providers that are programs of the user's: command lines, and functions in Python files."""

AGENT_RUNS = "agent runs"
"""The name of the lane on which attempts of programs run, for all agents of a program: its run slots."""
