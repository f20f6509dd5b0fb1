"""run_suite and collect as a Trio application calls them; on the virtual clock if time matters."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import trioeval
from trioeval import Lanes, LaneSpec, Reply, Request, Row, Status, SuiteSummary
from trioeval.errors import PlanError, SuiteError
from trioeval.testing import run_virtual


def suite_of(*words: str, **more: Any) -> trioeval.Suite:
    """Return a suite with one provider `mine` and one test per word."""
    return trioeval.parse_suite(
        {
            "providers": ["mine"],
            "prompts": ["say {{word}}"],
            "tests": [{"vars": {"word": word}} for word in words],
            **more,
        }
    )


async def slow_echo(request: Request) -> str:
    await trio.sleep(float(request.vars["word"]))
    return request.prompt


def collected(suite: trioeval.Suite, mine: Any) -> list[Row]:
    return run_virtual(lambda: trioeval.collect(suite, providers={"mine": mine}))


def test_any_async_callable_is_a_provider() -> None:
    """It gets the rendered prompt and the variables; it may return text or a reply."""

    async def mine(request: Request) -> Reply | str:
        if request.test_idx == 0:
            return request.prompt.upper()
        return Reply(output={"word": request.vars["word"]}, cost=0.5)

    rows = collected(suite_of("a", "b"), mine)
    assert [row.output for row in rows] == ["SAY A", {"word": "b"}]
    assert [row.status for row in rows] == [Status.NOT_GRADED, Status.NOT_GRADED]
    assert [row.index for row in rows] == [0, 1]


def test_limits_of_zero_mean_no_limit() -> None:
    """They limit neither a row nor the run."""
    suite = suite_of("3", evaluateOptions={"timeoutMs": 0, "maxEvalTimeMs": 0})
    (row,) = collected(suite, slow_echo)
    assert (row.output, row.latency_ms) == ("say 3", 3000)


def test_rows_are_emitted_in_order_and_timed_without_their_waits() -> None:
    """Latency is the provider's call alone; the second row waited three seconds for its slot."""
    suite = suite_of("3", "1", evaluateOptions={"maxConcurrency": 1})
    rows = collected(suite, slow_echo)
    assert [row.latency_ms for row in rows] == [3000, 1000]
    assert [row.wait_ms for row in rows] == [0, 0]
    assert [row.calls for row in rows] == [1, 1]


@pytest.mark.parametrize(
    ("options", "most"), [({}, 400), ({"maxLiveJobs": 3}, 3), ({"maxLiveJobs": 300}, 300)]
)
def test_a_suite_has_the_configured_number_of_calls_in_flight(
    options: dict[str, int], most: int
) -> None:
    """`maxConcurrency` is the width also beyond 256, and `maxLiveJobs` limits the started rows."""
    peak = busy = 0

    async def mine(request: Request) -> str:
        nonlocal peak, busy
        busy += 1
        peak = max(peak, busy)
        await trio.sleep(1)
        busy -= 1
        return request.prompt

    wide = {"maxConcurrency": 400, **options}
    rows = collected(suite_of(*map(str, range(500)), evaluateOptions=wide), mine)
    assert len(rows) == 500
    assert peak == most


def test_an_exception_of_a_provider_is_an_error_row_and_the_others_continue() -> None:
    """The error names the cause; the run returns normally."""

    async def mine(request: Request) -> str:
        if request.test_idx == 0:
            raise ValueError("no luck")
        return request.prompt

    bad, good = collected(suite_of("a", "b"), mine)
    assert (bad.status, bad.outcome, bad.reply) == (Status.ERROR, "failed", None)
    assert bad.error == "unexpected: provider mine: ValueError: no luck"
    assert good.status is Status.NOT_GRADED


def test_a_reply_without_output_is_an_error_and_is_kept() -> None:
    """It was paid for: the row has the reply, but no verdict."""

    async def mine(_request: Request) -> Reply:
        return Reply(output=None, cost=0.25)

    (row,) = collected(suite_of("a"), mine)
    assert row.status is Status.ERROR
    assert row.error == "empty_reply: the reply has no output"
    assert row.reply == Reply(output=None, cost=0.25)


def test_a_reply_is_kept_when_grading_fails() -> None:
    """An assertion that cannot be evaluated is an error of the row, which keeps the reply."""
    suite = suite_of("a", defaultTest={"assert": [{"type": "contains", "value": "{{nothing}}"}]})
    (row,) = collected(suite, slow_reply)
    assert row.status is Status.ERROR
    assert row.error is not None
    assert "nothing" in row.error
    assert row.output == "hello"


async def slow_reply(_request: Request) -> str:
    await trio.sleep(1)
    return "hello"


def test_timeouts_and_the_deadline_are_those_of_the_suite() -> None:
    """`timeoutMs` ends a row, `maxEvalTimeMs` the run; every row is emitted with the cause."""
    suite = suite_of(
        "1",
        "9",
        "1",
        evaluateOptions={"timeoutMs": 2000, "maxEvalTimeMs": 3500, "maxConcurrency": 1},
    )
    rows = collected(suite, slow_echo)
    assert [row.outcome for row in rows] == ["done", "timed_out", "interrupted"]
    assert [row.error for row in rows] == [
        None,
        "timed out after 2 s of working time (timeoutMs)",
        "interrupted: the run's deadline (maxEvalTimeMs) passed",
    ]


def test_a_cancelled_caller_keeps_the_ordered_rows() -> None:
    """All rows are emitted: finished, interrupted and not run."""

    async def main() -> list[Row]:
        rows: list[Row] = []

        async def keep(row: Row) -> None:
            rows.append(row)

        with trio.move_on_after(2.5):
            suite = suite_of("2", "1", "9", "9", evaluateOptions={"maxConcurrency": 2})
            await trioeval.run_suite(suite, emit=keep, providers={"mine": slow_echo})
        return rows

    rows = run_virtual(main)
    assert [row.outcome for row in rows] == ["done", "done", "interrupted", "interrupted"]
    assert rows[3].error == "interrupted: the run was cancelled"


def test_stop_admits_nothing_new_and_the_summary_counts_all_rows() -> None:
    """A stopped run ends by itself, and its totals add up to the suite."""

    async def main() -> SuiteSummary:
        stop = trio.Event()

        async def keep(_row: Row) -> None:
            stop.set()

        suite = suite_of("1", "1", "1", evaluateOptions={"maxConcurrency": 1})
        return await trioeval.run_suite(suite, emit=keep, providers={"mine": slow_echo}, stop=stop)

    summary = run_virtual(main)
    assert summary.rows == 3
    assert summary.not_run >= 1
    assert summary.duration <= 2.0


def test_two_suites_on_shared_lanes_keep_their_limits_together() -> None:
    """Four seconds of work on a lane of width 1 take four seconds, for the calls of both suites together."""

    async def main() -> tuple[float, int]:
        most = now = 0

        async def mine(_request: Request) -> str:
            nonlocal most, now
            now += 1
            most = max(most, now)
            await trio.sleep(1)
            now -= 1
            return "x"

        prepared = [
            trioeval.prepare(
                suite_of("a", "b", evaluateOptions={"maxConcurrency": width}),
                providers={"mine": mine},
            )
            for width in (1, 3)
        ]
        lanes = trioeval.run.make_lanes(*prepared)
        async with trio.open_nursery() as nursery:
            for one in prepared:
                nursery.start_soon(partial(trioeval.collect, one, lanes=lanes))
        return trio.current_time(), most

    assert run_virtual(main) == (4.0, 1)


def test_serial_tests_run_first_and_alone() -> None:
    """`options.runSerially` uses the kernel's serial gate."""
    order: list[str] = []

    async def mine(request: Request) -> str:
        order.append(f"+{request.vars['word']}")
        await trio.sleep(1)
        order.append(f"-{request.vars['word']}")
        return "x"

    suite = trioeval.parse_suite(
        {
            "providers": ["mine"],
            "tests": [
                {"vars": {"word": "a", "prompt": "p"}},
                {"vars": {"word": "b", "prompt": "p"}, "options": {"runSerially": True}},
                {"vars": {"word": "c", "prompt": "p"}},
            ],
        }
    )
    rows = collected(suite, mine)
    assert order[:2] == ["+b", "-b"]
    assert sorted(order[2:4]) == ["+a", "+c"]
    assert [row.index for row in rows] == [0, 1, 2]


def test_lanes_that_do_not_serve_the_suite_are_refused() -> None:
    """The caller's lanes must have the suite's lane."""
    with pytest.raises(PlanError) as caught:
        run_virtual(
            lambda: trioeval.collect(
                suite_of("a"), providers={"mine": slow_echo}, lanes=Lanes([LaneSpec("other")])
            )
        )
    assert str(caught.value) == "the plan starts jobs on ['mine']; the lanes are ['other']"


def test_a_suite_may_be_a_path(tmp_path: Path) -> None:
    """Paths inside it are relative to its folder."""
    (tmp_path / "replies.jsonl").write_text('{"prompt": "say hi", "output": "hi"}\n')
    (tmp_path / "suite.yaml").write_text("providers: ['replay:replies.jsonl']\nprompts: [say hi]\n")
    (row,) = trio.run(trioeval.collect, tmp_path / "suite.yaml")
    assert row.output == "hi"


def test_all_wrong_providers_are_reported_at_once() -> None:
    """Each is reported with its place in the suite."""
    suite = trioeval.parse_suite(
        {"providers": ["ehco", {"id": "sequence", "config": {"x": 1}}, "openai:gpt-4.1"]}
    )
    with pytest.raises(SuiteError) as caught:
        trioeval.prepare(suite, environ={})
    paths = [problem.path for problem in caught.value.problems]
    assert paths[0] == "$.providers[0].id"
    assert paths[1:3] == ["$.providers[1].config.x", "$.providers[1].config.inputs"]
    assert paths[3].startswith("$.providers[2]")


LANES: list[tuple[Mapping[str, Any], int | None, list[LaneSpec]]] = [
    ({}, None, [LaneSpec("mine", 4)]),
    ({"evaluateOptions": {"maxConcurrency": 7, "delay": 250}}, None, [LaneSpec("mine", 7, min_gap=0.25)]),
    ({"evaluateOptions": {"maxConcurrency": 7}}, 9, [LaneSpec("mine", 9)]),
    ({"providers": [{"id": "mine", "lane": {"maxConcurrency": 8, "rpm": 60, "burst": 3}}]}, None,
     [LaneSpec("mine", 8, rpm=60, burst=3)]),
    ({"providers": [{"id": "mine", "lane": {"maxConcurrency": 8}}]}, 3, [LaneSpec("mine", 3)]),
    ({"providers": [{"id": "mine", "delay": 500}], "evaluateOptions": {"delay": 100}}, None,
     [LaneSpec("mine", 4, min_gap=0.5)]),
    ({"providers": [{"id": "mine", "lane": "big"}, {"id": "echo", "lane": "big"}],
      "lanes": {"big": {"maxConcurrency": 20}}}, None, [LaneSpec("big", 20)]),
    ({"providers": ["mine", {"id": "mine", "label": "again"}]}, None, [LaneSpec("mine", 4)]),
]  # fmt: skip


@pytest.mark.parametrize(("suite", "cap", "lanes"), LANES)
def test_lanes_follow_the_suite_and_the_cap(
    suite: Mapping[str, Any], cap: int | None, lanes: list[LaneSpec]
) -> None:
    """A lane's own width wins over the suite's; a cap limits both; equal keys share a lane."""
    prepared = trioeval.prepare(
        trioeval.parse_suite({"providers": ["mine"], **suite}),
        providers={"mine": slow_echo},
        max_concurrency=cap,
    )
    assert list(prepared.lane_specs) == lanes


def test_providers_that_share_a_lane_must_not_contradict_each_other() -> None:
    """Settings belong to the lane; different ones are a mistake, reported at the second."""
    suite = trioeval.parse_suite(
        {"providers": [{"id": "echo", "lane": {"rpm": 5}}, {"id": "echo", "lane": {"rpm": 6}}]}
    )
    with pytest.raises(SuiteError) as caught:
        trioeval.prepare(suite)
    assert [problem.path for problem in caught.value.problems] == ["$.providers[1].lane"]


def test_the_stricter_of_two_suites_applies_on_a_shared_lane() -> None:
    """The smaller width and rate hold, and the larger gap."""
    prepared = [
        trioeval.prepare(
            trioeval.parse_suite({"providers": [{"id": "echo", "lane": lane}]}), environ={}
        )
        for lane in (
            {"maxConcurrency": 9, "rpm": 60, "delay": 5},
            {"maxConcurrency": 2, "delay": 9},
        )
    ]
    assert trioeval.run.make_lanes(*prepared)["echo"].spec == LaneSpec(
        "echo", 2, rpm=60, min_gap=0.009
    )


def test_a_javascript_file_computes_a_variable(tmp_path: Path) -> None:
    """It uses the name, the prompt and the other variables; one without an output fails its row."""
    (tmp_path / "v.js").write_text(
        "module.exports = (name, prompt, vars) => ({ output: [name, prompt.length, vars.q].join() });"
    )
    (tmp_path / "none.mjs").write_text("export default () => ({ error: 'no such thing' });")
    (tmp_path / "bad.js").write_text("module.exports = () => { throw new Error('no') };")
    names = ("v.js", "none.mjs", "bad.js")
    suite = trioeval.parse_suite(
        {
            "providers": ["echo"],
            "prompts": ["Hi {{a}}"],
            "tests": [{"vars": {"q": 7, "a": f"file://{name}"}} for name in names],
        },
        directory=tmp_path,
    )
    given, failed, raised = trio.run(trioeval.collect, suite)
    assert raised.error == "bad.js fails: Error: no"
    assert given.output == "Hi a,8,7"
    assert (
        failed.error
        == "variable a: the function of file://none.mjs returned an error: no such thing"
    )
