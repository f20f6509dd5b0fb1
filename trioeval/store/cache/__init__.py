"""Replies that are kept between runs, with single flight."""
