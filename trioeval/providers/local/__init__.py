"""Providers that need no network: echoes, recordings, and functions of the caller."""
