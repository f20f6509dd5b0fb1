"""What the pytest plugin is made of: suites as files of tests, and the thread that runs their rows.

Nothing of it is imported before a suite is collected.
"""
