"""The progress of a run, in each of its modes."""

import contextlib
import io
import re
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from trioeval.cli.flags import OutputFlags, ProgressMode, RunFlags, check_flags
from trioeval.cli.progress.live import pause
from trioeval.cli.progress.plain import PlainProgress, plain_line
from trioeval.cli.progress.progress import choose_mode
from trioeval.cli.progress.table import Room, compact, picture, wait_words
from trioeval.columns.lanes import OWN_LANES
from trioeval.errors import UsageError
from trioeval.kernel import Calls, Job, Lanes, LaneSpec, Plan, WaitReason, collect
from trioeval.report.activity import Activity
from trioeval.report.run_state import LaneState, RunSnapshot
from trioeval.run import Status
from trioeval.session.progress import RunStateSource
from trioeval.testing import run_virtual


def lane(name: str, **more: Any) -> LaneState:
    """The state of an idle lane, with changes."""
    rests: dict[str, Any] = {
        "mood": "open", "max_concurrency": 4, "limit": 4, "in_flight": 0, "queued": 0, "rpm": None,
        "tpm": None, "used_rpm": 0, "used_tpm": 0, "why": None, "wait_s": None, "reason": None, "calls": 0,
        "refused": 0, "retried": 0, "tokens": 0, "cost": 0.0,
    }  # fmt: skip
    return LaneState(name=name, **{**rests, **more})


BUSY = lane(
    "openai:gpt-mini", in_flight=3, limit=3, max_concurrency=8, queued=12, rpm=500, used_rpm=120, tpm=30_000,
    used_tpm=9_950, why=WaitReason.BLOCKED, wait_s=12.2, tokens=1_234_567, cost=0.125,
)  # fmt: skip
CLOSED = lane("other", mood="closed", limit=0, reason="401\x1b[2J: no key")
RUN = RunSnapshot(
    elapsed_s=75, total=200, done=50, kept=4, passed=40, failed=5, errors=1, eta_s=225.0,
    stopping=False, lanes=(BUSY, CLOSED, lane("idle")),
)  # fmt: skip


def drawn(
    state: RunSnapshot, width: int, height: int = 24, more: tuple[str, ...] = ()
) -> list[str]:
    lines = picture(state, more, Room(width=width, height=height))
    return ["".join(text for text, _ in line) for line in lines]


def test_the_mode_is_the_requested_one_or_suits_the_output() -> None:
    """GitHub comes before a terminal, and a terminal before a file; a dumb terminal gets no drawing."""

    def chosen(
        environ: Mapping[str, str],
        requested: ProgressMode | None = None,
        *,
        is_terminal: bool = True,
    ) -> ProgressMode:
        return choose_mode(requested, environ, is_terminal=is_terminal)

    assert chosen({"GITHUB_ACTIONS": "true"}, "json") == "json"
    assert chosen({"GITHUB_ACTIONS": "true"}) == "github"
    assert chosen({"GITHUB_ACTIONS": "false"}) == "live"
    assert chosen({"TERM": "xterm-256color", "NO_COLOR": "1"}) == "live"
    assert chosen({"TERM": "dumb"}) == "plain"
    assert chosen({"TERM": "xterm"}, is_terminal=False) == "plain"


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (OutputFlags(quiet=True, table=True), "--quiet and --table exclude each other"),
        (OutputFlags(quiet=True, progress=True), "--quiet and --progress exclude each other"),
        (
            OutputFlags(progress=False, progress_mode="json"),
            "--no-progress and --progress-mode exclude each other",
        ),
    ],
)
def test_contradictory_output_flags_are_refused(output: OutputFlags, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        check_flags(RunFlags(output=output))
    check_flags(RunFlags(output=OutputFlags(quiet=True, table=False, progress=False)))


def test_a_wide_terminal_shows_all_columns() -> None:
    assert drawn(RUN, 110, more=("  quiz: 3/9 questions",)) == [
        "━━━━━━━" + "─" * 23 + "  50/200 rows  1:15  3:45 left",
        "87.0 % of 46 pass  40 passed  5 failed  1 error  4 kept  1.2M tokens  $0.1250",
        "lane             in flight  queued      rpm      tpm  tokens     cost  waiting",
        "openai:gpt-mini   3/3 of 8      12  120/500  10k/30k    1.2M  $0.1250  429, 12 s",
        "other             0/0 of 4       0        0        0       0       $0  closed: 401 [2J: no key",
        "idle                   0/4       0        0        0       0       $0",
        "  quiz: 3/9 questions",
    ]


def test_each_of_several_lanes_shows_its_progress() -> None:
    """It also shows the remaining time if that is known."""
    lanes = (
        lane("slow", rows=100, done=10, eta_s=90.2, why=WaitReason.PACE),
        lane("fast", rows=100, done=100, eta_s=0.0),
        lane("new", rows=4),
    )
    state = attrs.evolve(RUN, lanes=lanes)
    assert drawn(state, 80)[2:] == [
        "lane  in flight  queued     rows  left  waiting",
        "slow        0/4       0   10/100  1:30  rpm",
        "fast        0/4       0  100/100",
        "new         0/4       0      0/4",
    ]
    assert drawn(state, 33)[2:] == [
        "lane  in flight  left  waiting",
        "slow        0/4  1:30  rpm",
        "fast        0/4",
        "new         0/4",
    ]
    assert plain_line(state).endswith(
        "; slow: 0/4 in flight, waits: rpm, 10/100 rows, 1:30 left; fast: 0/4 in flight, 100/100 rows;"
        " new: 0/4 in flight, 0/4 rows"
    )


def test_a_narrow_terminal_shows_fewer_columns() -> None:
    """Calls in flight and the reason of a wait are left out last."""
    assert drawn(RUN, 40) == [
        "━━────────  50/200 rows  1:15  3:45 left",
        "87.0 % of 46 pass  40 passed  5 failed",
        "lane             in flight  waiting",
        "openai:gpt-mini   3/3 of 8  429, 12 s",
        "other             0/0 of 4  closed: 401…",
        "idle                   0/4",
    ]
    assert drawn(RUN, 12) == [
        "50/200 rows", "87.0 % of 4…", "lane", "openai…-mini", "other", "idle",
    ]  # fmt: skip


def test_lanes_are_named_by_their_distinguishing_parts() -> None:
    """Tables and lines leave out hosts and empty parts of keys."""
    lanes = tuple(lane(f"openai|http://127.0.0.1:8799/v1|-|-|{n}b_tuned") for n in (6, 70))
    state = attrs.evolve(RUN, lanes=lanes)
    assert [line.split()[0] for line in drawn(state, 80)[2:]] == ["lane", "6b_tuned", "70b_tuned"]
    assert plain_line(state).endswith("; 6b_tuned: 0/4 in flight; 70b_tuned: 0/4 in flight")


def test_a_stop_is_shown_first() -> None:
    assert drawn(attrs.evolve(RUN, stopping=True), 24)[0] == "stopping  50/200 rows"


def test_a_run_of_datasets_shows_no_rows() -> None:
    """It has no rows to grade."""
    alone = attrs.evolve(RUN, total=0, done=0, kept=0, passed=0, failed=0, errors=0, lanes=())
    assert drawn(alone, 60, more=("  a: 1 row written",)) == ["1:15", "  a: 1 row written"]
    assert plain_line(alone, ["  a: 1 row written"]) == "1:15; a: 1 row written"


def test_the_busiest_of_many_lanes_are_shown_in_their_order() -> None:
    lanes = tuple(lane(f"lane {n}", in_flight=n % 7, calls=n) for n in range(300))
    shown = drawn(attrs.evolve(RUN, lanes=lanes), 80, 10)
    assert len(shown) == 10
    names = [line.split("  ")[0] for line in shown[3:9]]
    assert names == [f"lane {n}" for n in (258, 265, 272, 279, 286, 293)]
    assert shown[-1] == f"294 more lanes, {sum(n % 7 for n in range(300)) - 36} in flight"
    reason = plain_line(attrs.evolve(RUN, lanes=lanes))
    assert reason.count("in flight") == 5
    assert reason.endswith("295 more lanes")


def test_each_reason_of_a_wait_has_a_word() -> None:
    """So has each state of a lane; a wait that is about to end is shown without its time."""
    assert all(wait_words(lane("a", why=why)) for why in WaitReason if why is not WaitReason.TURN)
    assert wait_words(lane("a", why=WaitReason.TURN)) == ""
    assert wait_words(lane("a", why=WaitReason.PACE, wait_s=0.4)) == "rpm"
    assert wait_words(lane("a", why=WaitReason.TOKENS, wait_s=3.2)) == "tpm, 3 s"
    assert (
        wait_words(lane("a", mood="probing", why=WaitReason.BLOCKED, wait_s=2))
        == "probing, 429, 2 s"
    )
    assert wait_words(lane("a", mood="paused", why=WaitReason.PAUSED)) == "paused"


@given(st.integers(0, 10**14))
def test_numbers_are_short_and_rounded(number: int) -> None:
    text = compact(number)
    assert len(text) <= 4
    assert float(text.rstrip("kMGT")) * 1000 ** " kMGT".index(
        text.lstrip("0123456789.e-") or " "
    ) == (pytest.approx(number, rel=0.06))


def test_lanes_of_local_providers_are_not_shown() -> None:
    async def main() -> RunSnapshot:  # noqa: ASYNC124 - lanes are made in Trio
        lanes = Lanes([LaneSpec(name, 3) for name in ("fast", *OWN_LANES)])
        found = RunStateSource(
            total=1, lanes=lanes, activity=Activity(0), kept=lambda: 0, stopping=lambda: False
        )
        return found.state()

    assert [lane.name for lane in trio.run(main).lanes] == ["fast"]


def test_lines_show_the_activity_and_waits_of_each_lane() -> None:
    """A line appears every five seconds, all from the events of a real run."""

    async def main() -> list[str]:
        lanes = Lanes([LaneSpec("fast", 3), LaneSpec("paced", 2, rpm=6), LaneSpec("full", 1)])
        activity = Activity(trio.current_time())
        reason = RunStateSource(
            total=9, lanes=lanes, activity=activity, kept=lambda: 2, stopping=lambda: False
        )
        reason.expect({"fast": 4, "full": 2})
        reason.add(Status.PASS, "fast")
        stream = io.StringIO()

        async def body(job: Job[None], calls: Calls[None]) -> None:
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(calls, job.lane, trio.sleep, 9)

        plan = Plan.of(Job(i, name, None) for i, name in enumerate(lanes))
        with contextlib.redirect_stderr(stream):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    lambda: collect(plan, body, lanes=lanes, observe=activity.observe)
                )
                nursery.start_soon(
                    PlainProgress().show, reason.state, lambda: ["  quiz: 1/2 questions"]
                )
                await trio.sleep(6.5)
                nursery.cancel_scope.cancel()
        return stream.getvalue().splitlines()

    def line(clock: str, left: int) -> str:
        return (
            f"3/9 rows, 100.0 % of 1 passed, {clock}; fast: 2/3 in flight, 1/4 rows;"
            f" paced: 1/2 in flight, 1 queued, waits: rpm, {left} s;"
            " full: 1/1 in flight, 1 queued, waits: slots, 0/2 rows; quiz: 1/2 questions"
        )

    assert run_virtual(main) == [line("0:05", 5)]


@pytest.mark.parametrize("since", [0.0, 0.7, 2.0])
@pytest.mark.parametrize("left", [None, 3.0, 60.0])
def test_a_long_run_shows_a_line_at_once(left: float | None, since: float) -> None:
    """It is known to be long by the pace of its first rows; a short run has no line before five seconds."""

    async def main() -> list[str]:
        began = trio.current_time()

        def state() -> RunSnapshot:
            elapsed = trio.current_time() - began
            return attrs.evolve(RUN, elapsed_s=elapsed, eta_s=left if elapsed >= since else None)

        stream = io.StringIO()
        with contextlib.redirect_stderr(stream), trio.move_on_after(12):
            await PlainProgress().show(state, tuple)
        return stream.getvalue().splitlines()

    first = {0.0: ["0:00"], 0.7: ["0:01"]}.get(since, []) if left == 60 else []
    assert [re.findall(r"\d:\d\d", line)[0] for line in run_virtual(main)] == [
        *(*first, "0:05", "0:10")
    ]


@given(st.floats(0, 100))
def test_drawing_takes_a_hundredth_of_the_time(cost: float) -> None:
    """It draws at most eight times a second, and at least once in five seconds."""
    assert 0.125 <= pause(cost) <= 5
    if cost <= 0.05:
        assert cost <= 0.01 * pause(cost) * (1 + 1e-9)
