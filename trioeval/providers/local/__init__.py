"""Providers without a network: echoes, recordings, and functions of the caller."""
