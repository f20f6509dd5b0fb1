"""Progress for GitHub, programs and terminals, with hostile texts."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import attrs
import trio
from finished import records_of, rows_of
from hostile import TEXTS, assert_inert_log, assert_inert_terminal
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from trioeval.cli.flags import ProgressMode
from trioeval.cli.progress.github import GithubProgress
from trioeval.cli.progress.plain import plain_line
from trioeval.cli.progress.progress import open_progress
from trioeval.cli.progress.streams import Guarded, Messages
from trioeval.cli.progress.table import Room, picture
from trioeval.kernel import WaitReason
from trioeval.report.formats.markdown import workflow_command
from trioeval.report.records import RowRecord
from trioeval.report.run_state import LaneState, RunSnapshot
from trioeval.report.strip import KEEP_ALL, Strip
from trioeval.testing import run_virtual
from trioeval.text_safety import escape_control_characters


def lane(name: str, **more: Any) -> LaneState:
    """Return the state of an idle lane with changes."""
    rests: dict[str, Any] = {
        "mood": "open", "max_concurrency": 4, "limit": 4, "in_flight": 0, "queued": 0, "rpm": None,
        "tpm": None, "used_rpm": 0, "used_tpm": 0, "why": None, "wait_s": None, "reason": None, "calls": 0,
        "refused": 0, "retried": 0, "tokens": 0, "cost": 0.0,
    }  # fmt: skip
    return LaneState(name=name, **{**rests, **more})


RUN = RunSnapshot(
    elapsed_s=75, total=200, done=50, kept=4, passed=40, failed=5, errors=1, eta_s=225.0,
    stopping=False, lanes=(lane("openai"),),
)  # fmt: skip


_names = st.text(st.characters(codec="utf-8"), max_size=80) | st.sampled_from([*TEXTS.values()])
_counts = st.integers(0, 10**12)


@settings(max_examples=settings().max_examples // 3)
@given(
    st.lists(st.tuples(_names, _counts, st.sampled_from([None, *WaitReason])), max_size=12),
    _counts,
    st.lists(_names.map(escape_control_characters), max_size=3),
    st.integers(1, 130),
    st.integers(1, 30),
)
def test_drawn_progress_fits_and_is_inert(
    lanes: list[tuple[str, int, WaitReason | None]],
    done: int,
    more: list[str],
    width: int,
    height: int,
) -> None:
    """No line is wider than the terminal, and there are no more lines than fit."""
    shown = tuple(
        lane(name, in_flight=n, tokens=n, cost=n / 7, rpm=n + 1, tpm=n + 0.5, why=why, wait_s=n / 3)
        for name, n, why in lanes
    )
    state = attrs.evolve(RUN, total=done, done=done, lanes=shown)
    drawn = picture(state, more, Room(width=width, height=height))
    lines = ["".join(text for text, _ in line) for line in drawn]
    assert 1 <= len(lines) <= height
    assert max(map(cell_len, lines)) <= width
    assert_inert_terminal("\n".join(lines))
    assert_inert_terminal(plain_line(state, more))


_pieces = st.lists(
    st.sampled_from(
        [":", "::", "#", "##", "[", "error", " ", "\n", "\r", "\t", "\u3000", "x", "\\"]
    ),
    max_size=12,
).map("".join)


@given(st.lists(_pieces | st.sampled_from([*TEXTS.values()]), max_size=6))
def test_printed_text_is_never_a_github_command(pieces: list[str]) -> None:
    """Commands are broken in any partial writes; without the backslashes the text is unchanged."""
    stream = io.StringIO()
    guarded = Guarded(stream)
    for piece in pieces:
        print(piece, end="", file=guarded)
    found = stream.getvalue()
    assert_inert_log(found)
    assert found.replace("\\", "") == "".join(pieces).replace("\\", "")


@given(st.text(), st.text())
def test_a_command_is_one_line_with_escaped_values(text: str, title: str) -> None:
    """Escapes are those of the runner: percent signs last, and in properties colons and commas too."""
    command = workflow_command("error", text, {"title": title, "file": None})
    assert "\n" not in command
    assert "\r" not in command
    head, _, message = command.removeprefix("::error title=").partition("::")

    def read(escaped: str) -> str:
        for mark in ("%2C,", "%3A:", "%0A\n", "%0D\r", "%25%"):
            escaped = escaped.replace(mark[:3], mark[3])
        return escaped.replace("##\\[", "##[")

    assert read(head) == title.replace("##\\[", "##[")
    assert read(message) == text.replace("##\\[", "##[")


def told_of_run(
    mode: ProgressMode,
    strip: Strip = KEEP_ALL,
    root: Path = Path("/repo"),
    *,
    seconds: float = 1.5,
) -> list[str]:
    """Return the stderr of a run of six rows with hostile texts, and of output in between."""
    records = records_of(rows_of()[1])
    records[0]["error"] = "::error::hostile\n##[group]hostile, 100 %"
    records[0]["failureReason"] = 1
    stream = io.StringIO()
    wrapped = Guarded(stream) if mode == "github" else Messages(stream)

    async def main() -> None:
        log = open_progress(
            mode,
            {"GITHUB_WORKSPACE": str(root)},
            wrapped,  # type: ignore[arg-type] # it is one but for its name
            suite=Path("/repo/evals/suite.yaml"),
            strip=strip,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.show, lambda: RUN, lambda: ["  quiz"])
            for record in [*records] * 6:
                log.add(RowRecord.of(record))
            await trio.sleep(seconds)
            print("::warning::hostile\n", end="", file=wrapped)
            nursery.cancel_scope.cancel()
        with log.results():
            print(" ::stop-commands::hostile", file=wrapped)
        log.end(100, "6 rows; exit 100: it failed")

    with contextlib.redirect_stderr(wrapped):
        run_virtual(main)
    return stream.getvalue().splitlines()


def test_github_output_has_groups_and_annotations() -> None:
    """Ten rows are annotated, with the file relative to the root of the repository; others are counted."""
    lines = told_of_run("github", seconds=11)
    assert_inert_log("\n".join(lines), own=("group", "endgroup", "error", "notice"))
    assert lines[0] == "::group::trioeval: progress"
    assert [line.split(" ")[0] for line in lines[1:3]] == ["50/200", "50/200"]
    assert lines[3] == "\\::warning::hostile"
    assert lines[4:8] == [
        "::endgroup::",
        "::group::trioeval: results",
        " \\::stop-commands::hostile",
        "::endgroup::",
    ]
    assert len([line for line in lines if line.startswith("::error ")]) == 10
    assert lines[8] == (
        "::error file=evals/suite.yaml,title=FAIL mine%2C row 0 (word=hi)"
        '::::error::hostile ##\\[group]hostile, 100 %25; output: "say hi"'
    )
    assert lines[-2].startswith("::notice title=trioeval::8 more rows did not pass; ")
    assert lines[-1] == "6 rows; exit 100: it failed"


def test_annotations_omit_stripped_parts() -> None:
    """Annotations have no stripped parts, and no path of a suite elsewhere."""
    strip = Strip(response_output=True)
    assert not any("output:" in line for line in told_of_run("github", strip, seconds=11))
    strip = Strip(test_vars=True, grading_result=True)
    lines = told_of_run("github", strip, Path("/elsewhere"), seconds=11)
    assert lines[8] == "::error title=FAIL mine%2C row 0::no reason given"


def test_rows_that_were_not_run_have_no_annotations() -> None:
    """Failures stay visible."""
    record = records_of(rows_of()[1])[0]
    cut = {
        **record,
        "metadata": {"trioeval": {**record["metadata"]["trioeval"], "outcome": "not_run"}},
    }
    log, stream = GithubProgress(None, Path("/repo"), KEEP_ALL), io.StringIO()
    for row in (*[cut] * 20, record):
        log.add(RowRecord.of(row))
    with contextlib.redirect_stderr(stream), log.results():
        pass
    assert [line.split("::")[1].split(" ")[0] for line in stream.getvalue().splitlines()] == [
        "group", "endgroup", "error",
    ]  # fmt: skip


def test_programs_get_json_objects() -> None:
    """Rows, the state each second, messages, and the end: every line is an object."""
    facts = [json.loads(line) for line in told_of_run("json")]
    kinds = [fact["type"] for fact in facts]
    assert kinds[:24] == ["row"] * 24
    assert kinds[24:] == [*["progress"] * 2, "message", "progress", "message", "end"]
    assert facts[0] == {
        "type": "row", "task": None, "row": 0, "testIdx": 0, "promptIdx": 0, "status": "fail", "score": 0.75,
    }  # fmt: skip
    assert facts[24] == {"type": "progress", **RUN.json(), "notes": ["quiz"]}
    assert facts[26] == {"type": "message", "text": "::warning::hostile"}
    assert facts[-1] == {"type": "end", "code": 100, "line": "6 rows; exit 100: it failed"}


def test_json_objects_contain_no_github_command() -> None:
    """Objects contain no commands of the old syntax either."""
    stream = io.StringIO()
    print("a ##[group]", file=Messages(Guarded(stream)))  # type: ignore[arg-type] # it writes
    assert json.loads(stream.getvalue()) == {"type": "message", "text": "a ##[group]"}
    assert_inert_log(stream.getvalue())
