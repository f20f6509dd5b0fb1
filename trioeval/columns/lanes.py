"""The lanes of jobs of a dataset that call no provider."""

LOCAL = "columns"
"""The lane of jobs that make no calls and take no time. No provider's lane has its name."""

CODE = "columns: code"
"""The lane of jobs that run the suite's own code in other processes: local jobs must not wait for them."""

OWN_LANES = frozenset({LOCAL, CODE})
"""The lanes on which no provider is called."""

LOCAL_WIDTH = 8
"""Concurrent jobs on each of them: while some wait for a process or a file, others continue."""
