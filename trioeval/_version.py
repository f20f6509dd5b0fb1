"""The version, in a separate module so that `--version` imports nothing else."""

__version__ = "0.1.0"
