"""What a run does as spans and events of OpenTelemetry, by its conventions for generative AI."""
