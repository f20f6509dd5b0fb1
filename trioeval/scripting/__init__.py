"""Code that suites hold, in JavaScript and Python, and the programs that run it in other processes."""

MOST_WORKERS = 64
"""Most processes that run one file of code, or one function."""
