"""Rows and calls of a small suite, to be stored."""

from typing import Any

import attrs
import trio

import trioeval
from trioeval.errors import ProviderError
from trioeval.evaluation.journal import CallKey, CallRecord
from trioeval.providers import Reply
from trioeval.report.stored import RunStart
from trioeval.usage import Usage


def suite_of(size: int, *, word: str = "hello") -> trioeval.Suite:
    """Tests for an echo, one of three of which fails."""
    return trioeval.parse_suite(
        {
            "providers": ["echo"],
            "prompts": ["say {{word}} {{number}}"],
            "tests": [
                {
                    "vars": {"word": word, "number": number},
                    "assert": [
                        {"type": "contains", "value": word},
                        {
                            "type": "not-contains",
                            "value": "0" if number % 3 == 0 else "x",
                            "metric": "m",
                        },
                    ],
                }
                for number in range(size)
            ],
        }
    )


ROWS = tuple(trio.run(trioeval.collect, suite_of(3)))
"""The rows of the first three tests."""


def row_at(index: int, output: Any = None, **changes: Any) -> trioeval.Row:
    """A row at any position."""
    row = attrs.evolve(ROWS[index % 3], index=index, **changes)
    if output is None:
        return row
    return attrs.evolve(row, output=output, reply=Reply(output=output))


def call_at(
    index: int, output: Any = "an answer", question: bytes = b"q" * 16, **changes: Any
) -> CallRecord:
    """A call of a row."""
    answer = (
        output
        if isinstance(output, ProviderError | Reply)
        else Reply(output=output, usage=Usage(total=3), cost=0.25)
    )
    return CallRecord(
        key=CallKey(None, index, "provider", question),
        provider="echo",
        prompt=f"prompt {index}",
        answer=answer,
        latency_ms=12.5,
        **changes,
    )


def start_of(run_id: str = "eval-1", **changes: Any) -> RunStart:
    """The data at the start of a run."""
    fields: dict[str, Any] = {"utc_created": "2026-01-01T00:00:00.000Z", "heads": [{"config": {}}]}
    return RunStart(id=run_id, **(fields | changes))
