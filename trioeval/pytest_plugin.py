"""Collects suites as tests of pytest, a row each."""
