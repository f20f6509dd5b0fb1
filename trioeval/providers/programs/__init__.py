"""Providers that are programs of the user's: command lines, and functions in Python files."""
