"""Turns question/answer JSONL into questions with choices, and holds a result against what was recorded.

python questions_from_gsm8k.py INPUT.jsonl OUT_FOLDER --base-url http://127.0.0.1:8765/v1
python questions_from_gsm8k.py --check OUT.jsonl INPUT.jsonl

A line of the input: {"question": …, "final_answer": …, "models": {NAME: {"solution": …, "is_correct": …}}}.
`models` may be left out; then --model names what is asked.
Each question gets four choices: its own answer, and those of three other questions.
"""

import argparse
import json
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trioeval.question_eval.answer import normalized, question_prompt

CHOICES = 4
WORKERS = 16
NUMBER = re.compile(r"(-?)\$?(\d[\d,]*)(?:\.(\d*))?")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Turn question/answer JSONL into questions.")
    parser.add_argument("input", type=Path)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--base-url", default="http://127.0.0.1:8765/v1")
    parser.add_argument("--model", action="append", help="ask it; default: every recorded model")
    parser.add_argument("--seed", type=int, default=0, help="of which other answers are chosen")
    parser.add_argument("--check", type=Path, metavar="OUT.jsonl", help="compare with this result")
    given = parser.parse_args(arguments)
    records = read_lines(given.input)
    if given.check is not None:
        return check(read_lines(given.check), records)
    if given.folder is None:
        parser.error("OUT_FOLDER is missing")
    models = given.model or list(dict.fromkeys(m for r in records for m in r.get("models", {})))
    if not models:
        parser.error("no models are recorded; name some with --model")
    try:
        questions = make_questions(records, given.seed)
    except ValueError as error:
        parser.error(f"{given.input}: {error}")
    replies = make_replies(questions, records, models)
    given.folder.mkdir(parents=True, exist_ok=True)
    write(given.folder / "questions.json", {"version": 1, "questions": questions})
    write(given.folder / "suite.json", make_suite(models, given.base_url, given.input.name))
    if replies:
        text = "".join(json.dumps(reply, ensure_ascii=False) + "\n" for reply in replies)
        (given.folder / "replies.jsonl").write_text(text, encoding="utf-8")
    print(f"{len(questions)} questions for {', '.join(models)}; {len(replies)} recorded replies")
    return 0


def plain(answer: str) -> str:
    """An answer as a choice. Answers are compared as texts, so a number is always written alike.

    >>> plain("$1,080.00"), plain("-2.50"), plain(" 5. "), plain("dark blue")
    ('1080', '-2.5', '5', 'dark blue')
    """
    number = NUMBER.fullmatch(answer.strip())
    if number is None:
        return answer.strip()
    sign, whole, fraction = number.groups()
    digits, decimals = whole.replace(",", "").lstrip("0") or "0", (fraction or "").rstrip("0")
    return sign + digits + (f".{decimals}" if decimals else "")


def make_questions(records: Sequence[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """The same seed makes the same questions.

    Raises:
        ValueError: There are not enough different answers.
    """
    by_normal_form = {
        normalized(text): text for r in records for text in [plain(r["final_answer"])]
    }
    if len(by_normal_form) < CHOICES:
        msg = f"{CHOICES} different answers are needed, and there are {len(by_normal_form)}"
        raise ValueError(msg)
    questions = []
    for row, record in enumerate(records, 1):
        draw = random.Random(f"{seed} {row}")  # noqa: S311 - the same ones every time
        right = plain(record["final_answer"])
        others = [text for form, text in by_normal_form.items() if form != normalized(right)]
        answers = [right, *draw.sample(others, CHOICES - 1)]
        draw.shuffle(answers)
        text = record["question"].strip()
        known = {"id": f"row-{row}", "question": text, "answers": answers}
        questions.append({**known, "correctAnswers": [right]})
    return questions


def make_suite(models: Sequence[str], base_url: str, name: str) -> dict[str, Any]:
    return {
        "description": f"The questions of {name}, with {CHOICES} answers each",
        "providers": [
            {
                "id": f"openai:chat:{model}",
                "label": model,
                "config": {"apiBaseUrl": base_url},
                "lane": {"maxConcurrency": WORKERS},
            }
            for model in models
        ],
        "tasks": [
            {
                "id": "questions",
                "type": "question_eval",
                "questionsFile": "questions.json",
                "workers": WORKERS,
            }
        ],
    }


def make_replies(
    questions: Sequence[dict[str, Any]], records: Sequence[dict[str, Any]], models: Sequence[str]
) -> list[dict[str, str]]:
    """Return replies from the recorded models, as `trioeval fake-provider --replay` reads it."""
    return [
        {
            "prompt": question_prompt(question["question"], question["answers"]),
            "provider": model,
            "model": model,
            "output": as_reply(recorded["solution"]),
        }
        for question, record in zip(questions, records, strict=True)
        for model in models
        if (recorded := record.get("models", {}).get(model)) is not None
    ]


def as_reply(solution: str) -> str:
    """The solution, with its last line as an answer; as it is, if that is no `A: …`."""
    reasoning, _, last = solution.strip().rpartition("\n")
    if not last.startswith("A:"):
        return solution
    return f"{reasoning}\n<answer>{plain(last.removeprefix('A:'))}</answer>".strip()


def check(rows: Sequence[dict[str, Any]], records: Sequence[dict[str, Any]]) -> int:
    """Print accuracies beside recorded judgements; 1 if any row differs."""
    counts: dict[str, list[int]] = {}
    differing: list[str] = []
    for row in rows:
        question, model = row["question"], row["provider"]["label"]
        number = int(question["id"].removeprefix("row-"))
        models = records[number - 1].get("models", {})
        if model not in models:
            continue
        recorded = models[model]["is_correct"]
        count = counts.setdefault(model, [0, 0, 0])
        count[:] = count[0] + question["correct"], count[1] + recorded, count[2] + 1
        if question["correct"] is not recorded:
            said = question.get("agentAnswer", question["outcome"])
            right = question["correctAnswers"][0]
            what = f"{question['outcome']} and is recorded as {recorded}"
            differing.append(f"row {number}, {model}: is {what}; {right!r} against {said!r}")
    for model, (correct, judged, total) in counts.items():
        print(f"{model}: {correct} of {total} correct, {judged} are recorded as correct")
    print("\n".join(differing) or "no row differs")
    return 1 if differing else 0


def read_lines(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line.strip()]


def write(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
