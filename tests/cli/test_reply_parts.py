"""Text, tool calls, reasoning and log probabilities in files of a run, and of its export from the store."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from trioeval.cli import run_command_line

CALL = {"id": "c1", "name": "add", "arguments": {"a": 2}}
CUT = {"name": "add", "arguments": '{"a": '}
RECORDED: list[dict[str, Any]] = [
    {
        "prompt": "call",
        "output": [{"functionCall": {"name": "add"}}],
        "text": "Let me see.",
        "tool_calls": [CALL, CUT],
        "reasoning": "2 + 2",
        "log_probs": [-0.5, -1.25],
        "finish_reason": "tool_calls",
    },
    {"prompt": "think", "output": "Thinking: Hm.\n\n4", "text": "4", "reasoning": "Hm."},
    {"prompt": "refuse", "output": "No.", "refusal": "No."},
    {"prompt": "plain", "output": "4"},
]
SUITE = {
    "providers": ["replay:replies.jsonl"],
    "prompts": ["{{word}}"],
    "tests": [{"vars": {"word": one["prompt"]}} for one in RECORDED],
}
RUN = ("--no-table", "--no-progress")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("suite.json").write_text(json.dumps(SUITE))
    Path("replies.jsonl").write_text("\n".join(map(json.dumps, RECORDED)))


def responses(file: str) -> list[dict[str, Any]]:
    data = json.loads(Path(file).read_text())
    return [row["response"] for row in data["results"]["results"]]


def test_result_files_have_the_parts_of_a_reply_also_after_an_export() -> None:
    """Log probabilities are in promptfoo's place; parts that a reply lacks are left out."""
    assert run_command_line(["suite.json", *RUN, "-o", "run.json"]) == 0
    assert run_command_line(["export", "-o", "export.json"]) == 0
    assert responses("run.json") == responses("export.json")
    called, thought, refused, plain = responses("run.json")
    assert called["output"] == RECORDED[0]["output"]
    assert called["text"] == "Let me see."
    assert called["toolCalls"] == [CALL, CUT]
    assert (called["reasoning"], called["logProbs"]) == ("2 + 2", [-0.5, -1.25])
    assert (thought["output"], thought["text"]) == ("Thinking: Hm.\n\n4", "4")
    assert (refused["isRefusal"], refused["refusal"]) == (True, "No.")
    parts = {"text", "toolCalls", "reasoning", "refusal", "logProbs"}
    assert not parts & plain.keys()


def test_stripped_files_have_no_words_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The option is about all parts of the output."""
    monkeypatch.setenv("PROMPTFOO_STRIP_RESPONSE_OUTPUT", "true")
    assert run_command_line(["suite.json", *RUN, "-o", "run.json"]) == 0
    assert all("add" not in json.dumps(one) for one in responses("run.json"))
    called = responses("run.json")[0]
    assert {"text", "toolCalls", "reasoning"}.isdisjoint(called)
    assert called["logProbs"] == [-0.5, -1.25]


def test_inspect_logs_have_separate_parts() -> None:
    """Reasoning is content of its own, and tool calls are members of the message."""
    assert run_command_line(["suite.json", *RUN, "-o", "run.eval"]) == 0
    with zipfile.ZipFile("run.eval") as log:
        samples = [json.loads(log.read(f"samples/{i}_epoch_1.json")) for i in range(4)]
    called, thought, refused, plain = (sample["messages"][-1] for sample in samples)
    assert called["content"] == [
        {"type": "reasoning", "reasoning": "2 + 2"},
        {"type": "text", "text": "Let me see."},
    ]
    first, second = called["tool_calls"]
    assert first == {"id": "c1", "type": "function", "function": "add", "arguments": {"a": 2}}
    assert (second["id"], second["arguments"]) == ("call_2", {"input": '{"a": '})
    assert "parse_error" in second
    assert thought["content"][1] == {"type": "text", "text": "4"}
    assert (refused["content"], plain["content"]) == ("No.", "4")
    assert "tool_calls" not in plain
    output = samples[0]["output"]
    assert (output["completion"], output["choices"][0]["stop_reason"]) == (
        "Let me see.",
        "tool_calls",
    )
    assert output["choices"][0]["message"] == called


def test_an_export_of_foreign_parts_has_those_that_can_be_read() -> None:
    """Files of other programs may have anything under these names."""
    assert run_command_line(["suite.json", *RUN, "-o", "run.json"]) == 0
    data = json.loads(Path("run.json").read_text())
    first, second, *_ = data["results"]["results"]
    first["response"] |= {"toolCalls": [3, {"name": 4}, {"name": "f"}], "reasoning": [{"a": 1}]}
    second["response"] |= {"toolCalls": "x", "text": 5}
    data["evalId"] = "eval-other"
    Path("other.json").write_text(json.dumps(data))
    assert run_command_line(["import", "other.json"]) == 0
    assert run_command_line(["export", "latest", "-o", "again.eval"]) == 0
    with zipfile.ZipFile("again.eval") as log:
        called, thought = (json.loads(log.read(f"samples/{i}_epoch_1.json")) for i in range(2))
    message = called["messages"][-1]
    assert [call["function"] for call in message["tool_calls"]] == ["f"]
    assert message["content"] == "Let me see."
    assert thought["messages"][-1]["content"][1]["text"] == "Thinking: Hm.\n\n4"
