"""A dataset built inside of a Trio program, with its own model and time limit, and rows in memory."""

import trio

from trioeval import Request, build_columns
from trioeval.columns import DatasetEvent, GroupWritten, RowDropped

DIGIT = {"type": "sampler", "sampler": "uniform", "low": 0, "high": 9, "decimals": 0}
SETTINGS = {
    "rows": 6,
    "groupSize": 2,
    "seed": 4,
    "columns": [
        {"name": "a", **DIGIT},
        {"name": "b", **DIGIT},
        {"name": "answer", "type": "expression", "template": "{{ a * b }}", "as": "int"},
        {
            "name": "question",
            "type": "llm",
            "provider": "writer",
            "prompt": "Ask for {{ a }} times {{ b }}.",
            "dropWhen": "answer == 0",
        },
    ],
}


async def writer(request: Request) -> str:
    """Replace a model that writes a question."""
    await trio.sleep(0.01)
    return f"What is {request.vars['a']} times {request.vars['b']}?"


def on_event(event: DatasetEvent) -> None:
    match event:
        case RowDropped(row=row):
            print(f"row {row.row} dropped: {row.cause} by {row.column}")
        case GroupWritten(group=written):
            print(f"group {written.group} complete: {written.count} rows")


async def main() -> None:
    dataset = None
    with trio.move_on_after(30):
        dataset = await build_columns(SETTINGS, providers={"writer": writer}, events=on_event)
    if dataset is None:
        print("timed out")
        return
    result = dataset.result
    print(f"{result.outcome}: {result.written} of {result.requested} rows, {dict(result.dropped)}")
    for row in dataset.rows:
        print(row["question"], row["answer"])


if __name__ == "__main__":
    trio.run(main)
