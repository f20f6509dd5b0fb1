"""No recognized key is in the store, whatever part of a row or call contained it."""

from pathlib import Path

import attrs
import trio
from stored_things import ROWS, call_at, start_of

import trioeval
from trioeval.providers import Reply
from trioeval.store.reader import read_store
from trioeval.store.store import open_store

KEY = 'sk-0123456789"abcdef'


def rows_with_keys() -> list[trioeval.Row]:
    suite = trioeval.parse_suite(
        {
            "providers": ["echo"],
            "prompts": [{"raw": f"say {{{{word}}}} {KEY}", "label": f"label {KEY}"}],
            "tests": [{"vars": {"word": f"it is {KEY}"}}],
        }
    )
    return trio.run(trioeval.collect, suite)


def test_no_part_of_a_row_or_a_call_contains_a_key(tmp_path: Path) -> None:
    """The cases are prompt, label, variables, output and metadata; a row without a key is unchanged."""
    path = tmp_path / "r.db"
    (row,) = rows_with_keys()
    reply = Reply(output={KEY: [KEY, 1]}, metadata={"a": KEY})
    row = attrs.evolve(row, reply=reply, output=reply.output)

    async def main() -> None:
        async with open_store(path) as store:
            run = store.begin(start_of(keys={None: [KEY]}))
            run.row(row)
            run.row(attrs.evolve(ROWS[1], index=1))
            call = call_at(0, f"it is {KEY}")
            run.call(attrs.evolve(call, prompt=f"say {KEY}"))
            run.call(call_at(1, "4"))
            await run.durable()
            record = run.record(row).json
            assert record["prompt"] == {
                "raw": "say it is [hidden] [hidden]",
                "label": "label [hidden]",
            }
            assert record["vars"] == {"word": "it is [hidden]"}
            assert record["response"]["output"] == {"[hidden]": ["[hidden]", 1]}
            assert record["response"]["metadata"] == {"a": "[hidden]"}
            assert "sk-0123456789" not in run.record(row).text
            run.finish("interrupted", duration_ms=1.0)
            await run.durable()
        async with open_store(path) as store:
            again = await store.resume("eval-1", start_of())
            # It differs from the original reply, so it is requested again.
            assert again.recorded_reply(call_at(0).key) is None
            assert again.recorded_reply(call_at(1).key) is not None

    trio.run(main)
    with read_store(path) as reader:
        run = reader.run("latest")
        assert reader.record(run, None, 1) is not None
        (call,) = reader.calls(run, None, 0)
        assert call.prompt == "say [hidden]"
        assert call.reply is not None
        assert call.reply["output"] == "it is [hidden]"
    assert b"sk-0123456789" not in path.read_bytes()
