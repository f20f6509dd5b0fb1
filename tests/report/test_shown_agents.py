"""The agent of a row on a terminal and in result files."""

import csv
import io
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import attrs
import pytest
from finished import headed, records_of, results_of, rows_of, totals_of
from hypothesis import example, given
from hypothesis import strategies as st
from page_data import PageData
from rich.console import Console, RenderableType
from test_row_view import call, record_of

import trioeval
from trioeval.agent.attempts import attempt_reply, case_reply
from trioeval.agent.loop import LoopEnd
from trioeval.agent.restarts import AttemptEnd, AttemptFailure
from trioeval.report.formats.csv import csv_chunks
from trioeval.report.formats.junit import junit_chunks
from trioeval.report.html_report import html_chunks
from trioeval.report.records import RowRecord, agent_lines
from trioeval.report.row_view import row_view
from trioeval.report.strip import Strip
from trioeval.report.tables import columns_table
from trioeval.report.totals import Totals
from trioeval.suite.expand import expand

LOGS = "/runs/e1/t/a/logs"
ENDS = (
    AttemptEnd(
        failure=AttemptFailure("exit", "exit code 3:\x1b[2J <b>gone</b>"),
        exit_code=3,
        duration_s=1.25,
        metadata={
            "runId": "r0",
            "stdout": f"{LOGS}/attempt-000.stdout",
            "stderr": f"{LOGS}/attempt-000.stderr",
            "warnings": ["the log\nwas cut"],
        },
    ),
    AttemptEnd(
        output="fixed",
        duration_s=2.0,
        usage=trioeval.Usage(total=70),
        cost=0.25,
        metadata={
            "steps": 4,
            "toolCalls": {"read_file": 2},
            "toolLog": f"{LOGS}/attempt-001.tools.jsonl",
        },
    ),
    AttemptEnd(metadata={"steps": 1, "toolCalls": {}, "toolLog": f"{LOGS}/none"}),
)
END = LoopEnd(ending="done", message="done after 3 attempts", attempts=ENDS, children_ended=2)
ANSWER = case_reply(END, {"case": "a", "dependsOn": [], "folder": "/runs/e1/t/a"})
LINES = [
    "done after 3 attempts, 2 children had to be killed",
    "folder t/a",
    "attempt 0 has failed: exit: exit code 3: [2J <b>gone</b>, exit code 3, 1250 ms",
    "  t/a/logs/attempt-000.stdout",
    "  t/a/logs/attempt-000.stderr",
    "  warning: the log was cut",
    "attempt 1 has ended, 2000 ms, 4 steps, 70 tokens, $0.2500",
    "  t/a/logs/attempt-001.tools.jsonl",
    "attempt 2 has ended, 0 ms, 1 step",
]


async def agent(_request: trioeval.Request) -> trioeval.Reply:
    return ANSWER


def text_of(shown: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=140, color_system=None)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_row_shows_each_attempt_and_its_files() -> None:
    """Paths are relative to the working directory; special characters are escaped for the terminal."""
    record = RowRecord.of(records_of(rows_of(provider=agent)[1])[0])
    found = record.agent
    assert found is not None
    assert [*agent_lines(found, Path("/runs/e1"))] == LINES
    lines = [line.rstrip() for line in text_of(row_view(record, (), Path("/runs/e1"))).splitlines()]
    begin = lines.index(f"agent: {LINES[0]}")
    assert lines[begin + 1 : begin + len(LINES)] == [f"  {line}" for line in LINES[1:]]


def test_an_interrupted_case_shows_the_known_facts() -> None:
    """It has no folder, and perhaps no attempt."""
    so_far = LoopEnd(ending="interrupted", message="interrupted after 0 attempts", attempts=())
    found = RowRecord.of({"response": {"metadata": case_reply(so_far, {}).metadata}}).agent
    assert found is not None
    assert [*agent_lines(found)] == ["interrupted after 0 attempts"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["message", "attempts", "childrenEnded", "folder", "number", "stdout"]),
            inner,
            max_size=5,
        )
    ),
)


def _ending(**attempt: Any) -> dict[str, Any]:
    return {"message": "m", "childrenEnded": 0, "attempts": [{"number": 0, **attempt}]}


@given(JSON)
@example(_ending(durationMs=1, exitCode=math.inf))
@example(_ending(durationMs=1, failure="no"))
@example(_ending(durationMs=None))
def test_invalid_imported_agent_data_is_ignored(data: Any) -> None:
    """Results of other programs may be imported: unreadable members are left out, and break nothing."""
    found = RowRecord.of({"response": {"metadata": {"agent": data}}}).agent
    if found is not None:
        assert isinstance(data, dict)
        assert found.sentence == next(agent_lines(found))


@pytest.mark.parametrize(
    ("case", "description", "title"),
    [
        ("calc", None, "calc"),
        ("calc", "Repairs <a> sum", "calc: Repairs <a> sum"),
        ("repairs-a-sum", "Repairs a sum!", "repairs-a-sum"),
        (None, "Repairs", "Repairs"),
        (["not", "ours"], None, None),
    ],
)
def test_rows_are_named_after_their_cases(
    case: Any, description: str | None, title: str | None
) -> None:
    """This holds on a terminal, in JUnit XML, in CSV and on a page; the description identifies the case."""
    test = {**record_of()["testCase"], "description": description}
    test |= {} if case is None else {"case": case}
    record = RowRecord.of({**record_of(), "testCase": test})
    assert record.title == title
    assert record.name == (title or RowRecord.of(record_of()).name)


def test_documents_name_rows_after_their_cases() -> None:
    """They do so also if no test has a description."""
    suite = {
        "providers": ["echo"],
        "tasks": [{"id": "t", "type": "agent", "prompts": ["p"], "tests": [{"id": "calc"}]}],
    }
    parsed = trioeval.parse_suite(suite).tasks[0].suite
    (row, *_), (step,) = rows_of(provider=agent)[1], expand(parsed)
    record = records_of([attrs.evolve(row, step=step)])[0]
    totals = Totals.of(expand(parsed).columns)
    totals.add(RowRecord.of(record))
    results = attrs.evolve(
        results_of(), head=headed(parsed), totals=totals, records=lambda _column: iter([record])
    )
    assert "row 0 (calc)" in "".join(junit_chunks(results))
    assert PageData("".join(html_chunks(results))).rows("index")[0][1] == "calc"
    head, first, *_ = csv.reader(io.StringIO("".join(csv_chunks(results))))
    assert first[head.index("Description")] == "calc"


def test_a_given_up_agent_shows_the_reason() -> None:
    """The reason replaces its output; only names of files are shown if space is short."""
    why = "gave up after 1 attempt: not_found: no such program: /home/me/agents/fix.sh, see http://x/y/z"
    ended = LoopEnd(ending="failed", message=why, attempts=ENDS[:2], gave_up="permanent")
    reply = case_reply(ended, {})
    row = record_of()
    record = {**row, "response": {**row["response"], "metadata": reply.metadata}}
    reason = "gave up after 1 attempt: not_found: no such program: fix.sh, see http://x/y/z"
    assert RowRecord.of(record).shown == reason
    assert RowRecord.of(row).shown == row["response"]["output"]


def test_model_calls_are_separate_from_the_summary_of_an_attempt() -> None:
    """Replies have their tokens; the entry for the whole attempt has its end."""
    attempt = call(role="attempt", provider="gpt", reply={"output": "…"}, tokens=35)
    over = [
        call(
            role="attempt",
            provider="gpt",
            reply={"output": "", "metadata": dict(attempt_reply(end, spent=False).metadata)},
            tokens=None,
            cost=None,
        )
        for end in ENDS[:2]
    ]
    text = text_of(row_view(RowRecord.of(record_of()), [attempt, over[0], attempt, over[1]]))
    rows = [line.split() for line in text.splitlines() if " gpt " in line]
    assert rows == [
        [*["1", "1", "gpt", "agent", "12", "35", "$0.5000", "reply"]],
        [*["2", "1", "gpt", "attempt", "12", "has", "failed:", "exit"]],
        [*["3", "1", "gpt", "agent", "12", "35", "$0.5000", "reply"]],
        [*["4", "1", "gpt", "attempt", "12", "has", "ended"]],
    ]


@pytest.mark.parametrize("has_agents", [False, True])
def test_attempts_are_a_column_if_there_are_agents(has_agents: bool) -> None:  # noqa: FBT001
    """The table of columns and CSV have it; other runs are unchanged."""
    results = results_of(provider=agent) if has_agents else results_of()
    text = text_of(columns_table(results.columns, results.totals))
    assert ("attempts" in text) == has_agents
    head, first, *_ = csv.reader(io.StringIO("".join(csv_chunks(results))))
    assert ("Attempts" in head) == has_agents
    assert len(head) == len(first)
    if has_agents:
        assert [line.split()[-1] for line in text.splitlines() if "mine" in line] == ["6"]
        assert first[head.index("Attempts")] == "3"
        assert head.count("Attempts") == 1  # the other column has no agent


def test_documents_have_the_attempts_as_text() -> None:
    """They follow a summary on a page, and are the output of the case in JUnit XML; none of it is markup."""
    page = PageData("".join(html_chunks(results_of(provider=agent))))
    blocks = [page.block(row, "3 attempts") for row in range(4)]
    assert [text is not None for text in blocks] == [True, False, True, False]
    assert "<b>gone</b>" in blocks[0]
    tree = ET.fromstring("".join(junit_chunks(results_of(provider=agent))))  # noqa: S314 - ours
    outs = [case.findtext("system-out") for case in tree.iter("testcase")]
    lines = [line.replace("t/a", "/runs/e1/t/a") for line in LINES]
    assert [out.splitlines() for out in outs if out is not None] == [lines, lines]
    assert outs.count(None) == 2


def test_stripped_agent_data_is_absent() -> None:
    """Metadata of a row may be left out of result files."""
    results = results_of(provider=agent, strip=Strip(metadata=True))
    assert "attempt 0" not in "".join(junit_chunks(results))
    page = PageData("".join(html_chunks(results)))
    assert {page.block(row, "3 attempts") for row in range(4)} == {None}
    head, first, *_ = csv.reader(io.StringIO("".join(csv_chunks(results))))
    assert first[head.index("Attempts")] == ""


def test_totals_count_the_attempts_of_all_rows() -> None:
    """The total is None without an agent, which differs from 0."""
    parsed, rows = rows_of(provider=agent)
    assert [column.attempts for column in totals_of(parsed, rows).columns] == [6, None]


@pytest.mark.parametrize(
    ("ending", "outcome", "word"),
    [("failed", "done", "gave up"), ("done", "done", "done"), ("failed", "timed_out", "timed out")],
)
def test_the_heading_of_a_row_is_the_end_of_its_agent(ending: Any, outcome: str, word: str) -> None:
    """It is the outcome of the row if the row itself did not end."""
    gave_up: Any = "attempts" if ending == "failed" else None
    end = LoopEnd(ending=ending, message="m", attempts=(), gave_up=gave_up)
    row = record_of()
    record = {
        **row,
        "response": {**row["response"], "metadata": case_reply(end, {}).metadata},
        "metadata": {
            **row["metadata"],
            "trioeval": {**row["metadata"]["trioeval"], "outcome": outcome},
        },
    }
    heading = text_of(row_view(RowRecord.of(record))).splitlines()[2]
    assert f"{word}, " in heading
