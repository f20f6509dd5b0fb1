"""The progress of a run, drawn, in lines or as JSON."""
