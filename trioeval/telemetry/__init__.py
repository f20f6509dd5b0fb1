"""Spans and events of OpenTelemetry for a run, by the conventions for generative AI."""
