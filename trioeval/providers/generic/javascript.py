"""The worker processes in which the JavaScript of a provider runs."""

from collections.abc import Mapping
from pathlib import Path

from trioeval.providers.programs.workers import WorkerSpec
from trioeval.scripting.engine import program

WORKERS = 2
"""Scripts of one provider that run at once."""


def engine_workers(directory: Path, environ: Mapping[str, str]) -> WorkerSpec:
    """The workers that run scripts.

    Args:
        directory: Where they run; absolute.
        environ: What they inherit.
    """
    return WorkerSpec.of_own("JavaScript", program.__file__, directory, environ, WORKERS)
