"""Queries into replies and outputs, and the worker processes in which those run that may take long."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from trioeval.errors import ProviderError
from trioeval.providers.generic.reply import Answer, Query
from trioeval.providers.programs.workers import OutOfMemoryError, Workers, WorkerSpec
from trioeval.scripting.queries import program

WORKERS = 2
"""Queries of one provider, or of one suite, that run at once."""


def query_workers(directory: Path, environ: Mapping[str, str]) -> WorkerSpec:
    """The workers that evaluate queries.

    Args:
        directory: Where they run; absolute.
        environ: What they inherit.
    """
    return attrs.evolve(
        WorkerSpec.of_own("the query", program.__file__, directory, environ, WORKERS),
        memory_mb=program.MEMORY_MB,
        largest=program.LARGEST,
        grace=0.0,
        limit_key=None,
    )


async def apply_query(
    query: Query,
    answer: Answer,
    size: int,
    workers: Workers,
    *,
    limit: float = program.TIME_LIMIT,
) -> Any:
    """What a query finds. A checkpoint unless it is quick.

    Args:
        query: What is looked for.
        answer: Where.
        size: Bytes or characters of the document, as JSON.
        workers: From `query_workers`.
        limit: Seconds that a query may take that is not quick, > 0.

    Raises:
        TransformError: It finds nothing, fails, or takes more than it may.
    """
    if query.is_quick(size):
        return query.apply(answer)
    arguments = query.arguments(answer)
    try:
        return query.output(await workers.call(arguments, limit))
    except OutOfMemoryError as error:
        raise query.failure(f"it takes more than {program.MEMORY_MB} MiB of memory") from error
    except ProviderError as error:
        if error.kind == "attempt_timeout":
            raise query.failure(f"it takes longer than {limit:g} seconds") from error
        raise query.failure(error.message) from error
