"""Suites from files to models: the one place that knows the form of every type of task."""
