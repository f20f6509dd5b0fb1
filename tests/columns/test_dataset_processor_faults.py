"""Invalid results of a processor are its own failure, with its name and its `onError`."""

from collections.abc import Callable
from typing import Any

import pytest
from dataset_scripted import built, dataset, seeds, whole

from trioeval.columns.events import ProcessorEnded
from trioeval.columns.spec import Processed, Rows, StageProcessor, Stages

SEED = whole("seed", seeds(), types={"seed": "int"})

FAULTS = [
    (
        lambda _values: {"seed": "text"},
        "column 'seed' of row 2 is now 'text', which is not a valid int",
    ),
    (lambda values: {**values, "x": 1}, "it added column 'x' to row 2"),
    (lambda _values: {}, "it lost column 'seed' of row 2"),
]


def processor(name: str, change: Callable[[Any], Any], **more: Any) -> StageProcessor:
    """Return a processor that changes the rows of group 1."""

    async def run(group: int | None, rows: Rows) -> Processed:
        if group == 0:
            return Processed(rows)
        return Processed([(row, change(values) if row > 1 else values) for row, values in rows])

    return StageProcessor(name=name, run=run, **more)


@pytest.mark.parametrize("stage", ["before_batch", "after_batch", "after_generation"])
@pytest.mark.parametrize(("change", "why"), FAULTS)
def test_co_62_invalid_values_drop_the_group_if_configured(
    stage: str, change: Callable[[Any], Any], why: str
) -> None:
    """The message names the processor that returned them, not the last one of its stage."""
    stages = Stages(
        **{
            stage: (
                processor("first", change, on_error="drop_group"),
                processor("second", lambda values: values),
            )
        }
    )
    found = built(dataset(SEED, rows=6, size=2, stages=stages))
    if stage == "after_generation":
        assert found.result.error == f"first: {why}"
        return
    assert found.result.error is None
    assert found.result.dropped == {"failed": 4}
    assert found.result.first_error == f"row 2: first (group 1): {why}"
    assert found.numbers == [0, 1]
    [ended] = [one for one in found.of(ProcessorEnded) if one.group == 1]
    assert (ended.name, ended.error) == ("first", why)
