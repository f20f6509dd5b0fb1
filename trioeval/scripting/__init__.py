"""JavaScript and Python code of suites, and the programs that run it in other processes."""

MOST_WORKERS = 64
"""The most processes that run one file of code, or one function."""
