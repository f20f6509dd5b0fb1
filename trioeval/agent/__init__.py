"""Agents that are started again and again until they say that they are done.

When to start once more and when to give up (`restarts`), the loop that does it (`loop`), who may begin
(`planner`), what waits for what (`dependencies`), and what all parties tell each other (`bus`). Nothing here
knows of suites, providers or databases: an agent is an async callable, and a slot is whatever runs it.
"""
