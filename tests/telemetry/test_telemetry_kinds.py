"""Every type of task exports a complete tree, and leaves nothing open."""

import json
from pathlib import Path
from typing import Any

import trio
from exported import attributes, export

from trioeval import Reply, Request


async def pupil(request: Request) -> Reply:
    """Reply at once or later, to any prompt."""
    await trio.sleep(1.0)
    return Reply(output="<answer>Blue</answer>")


def quiz(folder: Path) -> Any:
    questions = [
        {
            "id": f"q{n}",
            "question": "Colour?",
            "answers": ["Red", "Blue"],
            "correct_answers": [right],
        }
        for n, right in enumerate(["Blue", "Red"])
    ]
    file = folder / "questions.json"
    file.write_text(json.dumps({"version": 1, "questions": questions}))
    task = {"id": "quiz", "type": "question_eval", "questionsFile": str(file)}
    return {"providers": ["pupil"], "tasks": [task]}


def test_questions_are_rows_and_their_answers_are_evaluated(tmp_path: Path) -> None:
    out = export(quiz(tmp_path), {"pupil": pupil}, directory=tmp_path)
    assert out.ended
    assert len(out.named("trioeval.row")) == len(out.calls) == 2
    for call in out.calls:
        row = out.parent(call)
        assert row is not None
        index = "trioeval.row.index"
        assert attributes(row)[index] == attributes(call)[index]
    labels = {
        (
            event_attributes["gen_ai.evaluation.name"],
            event_attributes["gen_ai.evaluation.score.label"],
        )
        for event_attributes in (one.log_record.attributes for one in out.events)
    }
    assert labels == {("answer", "pass"), ("answer", "fail")}


def test_compared_rows_are_reported_after_the_comparison() -> None:
    """A job may end before its row is known."""
    check = {"type": "select-best", "value": "short", "provider": "judge"}
    document = {
        "providers": ["a", "b"],
        "prompts": ["x"],
        "tests": [{"assert": [check]}],
    }

    async def judge(request: Request) -> Reply:
        await trio.sleep(1.0)
        return Reply(output="1")

    out = export(document, {"a": pupil, "b": pupil, "judge": judge})
    assert out.ended
    assert len(out.named("trioeval.row")) == 2
    assert [event.log_record.attributes["gen_ai.evaluation.name"] for event in out.events] == [
        "select-best",
        "select-best",
    ]


def test_calls_for_a_dataset_belong_to_the_run(tmp_path: Path) -> None:
    """Rows of a dataset are data and may be many: they have no spans."""
    columns = [
        {"name": "word", "type": "sampler", "sampler": "category", "values": ["a"]},
        {"name": "text", "type": "llm", "provider": "pupil", "prompt": "{{word}}"},
    ]
    task = {"id": "data", "type": "columns", "rows": 3, "columns": columns}
    task["outputDir"] = str(tmp_path / "data")
    document = {"providers": ["pupil"], "tasks": [task]}

    async def quick(_request: Request) -> str:  # noqa: ASYNC124 - nothing to wait for
        return "a"

    out = export(document, {"pupil": quick}, directory=tmp_path, is_virtual=False)
    assert out.ended
    [run] = out.named("trioeval.run")
    assert [out.parent(call) for call in out.calls] == [run] * 3
    assert {attributes(call)["trioeval.role"] for call in out.calls} == {"cell"}
    assert out.named("trioeval.row") == []
