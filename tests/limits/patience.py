"""Timeouts for servers on this machine, longer than any busy one needs."""

PATIENCE = 60.0
