"""Evaluation kernel for language models on Trio's structured concurrency."""
