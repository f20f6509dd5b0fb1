"""The cost of a stop."""

import trio
from journalled import Notes

from trioeval import Row, parse_suite
from trioeval.run import RunOptions, run_with_options
from trioeval.testing import run_virtual

ROWS = 1200


def test_a_stop_does_not_wait_for_the_disk_for_each_row_that_never_started() -> None:
    """They contain nothing to lose; all are emitted in order, and recorded."""

    async def main() -> tuple[Notes, list[int], float]:
        notes, emitted, stop = Notes(lasts=1.0), list[int](), trio.Event()
        stop.set()

        async def emit(row: Row) -> None:
            emitted.append(row.index)

        suite = parse_suite(
            {
                "providers": ["echo"],
                "prompts": ["{{n}}"],
                "tests": [{"vars": {"n": n}} for n in range(ROWS)],
            }
        )
        await run_with_options(suite, RunOptions(emit=emit, stop=stop, journal=notes))
        return notes, emitted, trio.current_time()

    notes, emitted, took = run_virtual(main)
    assert emitted == [row.index for row in notes.rows] == [*range(ROWS)]
    assert {row.outcome for row in notes.rows} == {"not_run"}
    assert took <= 5
