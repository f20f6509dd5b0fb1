"""Run slots: the lane on which attempts of programs run, over all agents of a program."""

AGENT_RUNS = "agent runs"
"""The name of that lane."""
