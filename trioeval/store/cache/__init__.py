"""Replies that are shared between runs, with one call at a time for equal requests."""
