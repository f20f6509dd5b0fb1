"""One row for a terminal."""

import io
from typing import Any

import pytest
from finished import records_of, rows_of
from rich.console import Console

import trioeval
from trioeval.kernel import WaitReason
from trioeval.report.records import RowRecord
from trioeval.report.row_view import row_view
from trioeval.report.stored import StoredCall
from trioeval.text_safety import inert_lines


def call(**facts: Any) -> StoredCall:
    """Return a call as the store returns it."""
    usual: dict[str, Any] = {
        "role": "provider",
        "provider": "mine",
        "execution": 1,
        "prompt": "p",
        "reply": None,
        "error": None,
        "latency_ms": 12.0,
        "tokens": 5,
        "cost": 0.5,
        "cached": False,
    }
    return StoredCall(**usual | facts)


def seen(record: Any, *calls: StoredCall, width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(row_view(RowRecord.of(record), calls))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def record_of(**changes: Any) -> dict[str, Any]:
    return {**records_of(rows_of()[1])[0], **changes}


def test_an_empty_reply_is_shown_with_the_reason_of_its_end() -> None:
    """The reason explains the missing text."""
    record = record_of()
    record["response"] = {**record["response"], "output": "", "finishReason": "length"}
    lines = [line.rstrip() for line in seen(record).splitlines()]
    at = lines.index("reply (cut off at its token limit, ended by length)")
    assert lines[at + 1] == "  (empty)"


def test_tool_calls_are_listed_in_one_form() -> None:
    """Outputs have them in the forms of their services, or not at all."""
    record = record_of()
    calls = [{"id": "c", "name": "add", "arguments": {"a": 2}}, {"name": "f", "arguments": "{"}, 3]
    record["response"] = {**record["response"], "toolCalls": calls}
    lines = [line.rstrip() for line in seen(record).splitlines()]
    at = lines.index("tool calls")
    assert lines[at + 1 : at + 3] == ['  add {"a":2}', "  f {"]
    assert "tool calls" not in seen(record_of())


def test_a_row_shows_prompt_output_and_assertions() -> None:
    """The parts are in this order, with every assertion."""
    lines = [line.rstrip() for line in seen(record_of()).splitlines()]
    assert lines[:3] == [
        "row 0 (word=hi)",
        "mine | say {{word}}",
        "FAIL score 0.75, done, 0 ms, 5 tokens, $0.5000, 1 call",
    ]
    titles = [line for line in lines if line and not line.startswith(" ")][3:]
    assert titles[:4] == [
        'verdict: the output does not equal "no"; output: "say hi"',
        "variables",
        "prompt",
        "reply (ended by stop)",
    ]
    assert ["PASS", "1", "3", "contains", "hi", "as", "m"] in [line.split()[:7] for line in lines]
    assert ["FAIL", "0", "1", "equals", "no", "as", "m"] in [line.split()[:7] for line in lines]
    assert "waited" not in titles


def test_a_row_without_a_verdict_shows_the_reason() -> None:
    """An error has the response of the provider and the waits, longest first."""
    failed = records_of(rows_of()[1])[2]
    failed["metadata"]["trioeval"]["waits"] = {"backoff": 3.5, "slot": 7.25, "else": 0.001}
    text = seen(failed)
    assert "ERROR failed" in text
    assert "4 calls" in text
    assert text.count("server: down") == 1
    assert "it is  <down>" in text
    waited = text[text.index("waited") :].splitlines()
    assert [line.split(maxsplit=2) for line in waited[1:]] == [
        ["7.250", "s", "for a free slot of the lane"],
        ["3.500", "s", "before a failed call was repeated"],
        ["0.001", "s", "else"],
    ]


@pytest.mark.parametrize("why", WaitReason)
def test_every_wait_has_a_description(why: WaitReason) -> None:
    """Every reason of a wait is described."""
    record = record_of()
    record["metadata"]["trioeval"]["waits"] = {why.value: 1.0}
    line = seen(record).splitlines()[-1]
    assert line.split()[:2] == ["1.000", "s"]
    assert len(line.split()) > 4


def test_a_wait_without_reasons_is_shown_by_its_length() -> None:
    """Rows of older versions and imported rows lack some facts."""
    record = record_of()
    record["metadata"]["trioeval"]["waitMs"] = 1500.0
    assert seen(record).splitlines()[-1] == "waited 1.500 s"


def test_calls_and_judges_are_shown() -> None:
    """Calls have their provider, execution and result."""
    text = seen(
        record_of(),
        call(error={"kind": "rate_limited", "message": "slow down"}, latency_ms=None, cost=None),
        call(reply={"output": "say hi"}, execution=2, cached=True),
        call(
            role="grader", provider="judge", prompt="is it kind?", reply={"output": {"pass": True}}
        ),
        call(role="grader", provider="judge", error={"kind": "server", "message": "down"}),
    )
    lines = [line.split() for line in text.splitlines()]
    assert ["1", "1", "mine", "provider", "5", "rate_limited:", "slow", "down"] in lines
    assert [
        "2",
        "2",
        "mine",
        "provider",
        "12",
        "5",
        "$0.5000",
        "reply",
        "from",
        "the",
        "cache",
    ] in lines
    assert "judge: prompt of the judge\n  is it kind?" in "\n".join(
        map(str.rstrip, text.splitlines())
    )
    assert '  "pass": true' in text
    assert text.count("reply of the call") == 1


async def odd(_request: trioeval.Request) -> trioeval.Reply:
    return trioeval.Reply(output={"a": ["\x1b[31m", "\u202e"]}, refusal="no")


def test_foreign_text_is_inert() -> None:
    """Replies, prompts, names, reasons and errors are inert."""
    evil = "\x1b]0;t\x07[bold red]x[/]\u202eabc\ud800\r\x08"
    suite = {
        "providers": [{"id": "mine", "label": "[bold]\x1b[1m"}],
        "prompts": [{"raw": "\x1b[31m{{v}}", "label": "[/]\x1b[1m"}],
        "tests": [{"vars": {"v": "\x1b[2J"}, "assert": [{"type": "equals", "value": "\x1b[m"}]}],
    }
    record = records_of(rows_of(suite, odd)[1])[0]
    record["task"] = record["error"] = evil
    record["gradingResult"]["reason"] = evil
    record["gradingResult"]["componentResults"][0]["metadata"] = {"graders": [evil]}
    record["metadata"]["trioeval"]["waits"] = {evil: 1.0}
    text = seen(
        record,
        call(provider=evil, error={"kind": evil, "message": evil}),
        call(role="grader", provider=evil, prompt=evil, reply={"output": evil}),
    )
    assert all(char.isprintable() for char in text.replace("\n", ""))
    assert "[bold red]x[/]" in text
    assert "(a refusal)" in text


def test_long_texts_are_truncated() -> None:
    """A reply of megabytes is cut, with its length."""
    record = record_of()
    record["response"]["output"] = "a" * 1_000_000
    text = seen(record)
    assert "(980000 more characters)" in text.replace("\n", "")
    assert len(text) < 30_000


def test_lines_keep_their_indentation() -> None:
    """Code keeps its lines too."""
    assert inert_lines("if x:\n\ty()\x85\u2028", 50) == "if x:\n    y()  "
