"""Prompts, tests, variables and values that a suite takes from other files."""
