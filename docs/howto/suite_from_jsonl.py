"""Turns question/answer JSONL into a suite, and holds a result document against what was recorded.

python suite_from_jsonl.py INPUT.jsonl OUT_FOLDER --base-url http://127.0.0.1:8765/v1
python suite_from_jsonl.py --check OUT.json INPUT.jsonl

A line of the input: {"question": …, "final_answer": …, "models": {NAME: {"solution": …, "is_correct": …}}}.
`models` may be left out; then --model names what is asked.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LANE = {"maxConcurrency": 16}
NUMBER = re.compile(r"(-?)\$?(\d[\d,]*)(?:\.(\d+))?")
TEMPLATE_MARKS = ("{{", "{%", "{#")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Turn question/answer JSONL into a suite.")
    parser.add_argument("input", type=Path)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--base-url", default="http://127.0.0.1:8765/v1")
    parser.add_argument("--model", action="append", help="ask it; default: every recorded model")
    parser.add_argument("--check", type=Path, metavar="OUT.json", help="compare with this result")
    given = parser.parse_args(arguments)
    lines = given.input.read_text(encoding="utf-8").splitlines()
    records: list[dict[str, Any]] = [json.loads(line) for line in lines if line.strip()]
    if given.check is not None:
        return check(json.loads(given.check.read_text(encoding="utf-8")), records)
    if given.folder is None:
        parser.error("OUT_FOLDER is missing")
    models = given.model or list(dict.fromkeys(m for r in records for m in r.get("models", {})))
    if not models:
        parser.error("no models are recorded; name some with --model")
    given.folder.mkdir(parents=True, exist_ok=True)
    suite = make_suite(records, models, given.base_url, given.input.name)
    write(given.folder / "suite.json", json.dumps(suite, ensure_ascii=False, indent=2) + "\n")
    replies = make_replies(records, models)
    if replies:
        text = "".join(json.dumps(reply, ensure_ascii=False) + "\n" for reply in replies)
        write(given.folder / "replies.jsonl", text)
    print(f"{len(records)} questions for {', '.join(models)}; {len(replies)} recorded replies")
    return 0


def as_variable(question: str) -> str:
    """Variables are rendered like prompts; a question is to be asked as it is written."""
    if any(mark in question for mark in TEMPLATE_MARKS):
        return f"{{% raw %}}{question}{{% endraw %}}"
    return question


def make_suite(
    records: Sequence[dict[str, Any]], models: Sequence[str], base_url: str, name: str
) -> dict[str, Any]:
    return {
        "description": f"The {len(records)} questions of {name}",
        "prompts": ["{{question}}"],
        "providers": [
            {
                "id": f"openai:chat:{model}",
                "label": model,
                "config": {"apiBaseUrl": base_url},
                "lane": LANE,
            }
            for model in models
        ],
        "tests": [
            {
                "vars": {"question": as_variable(record["question"].strip())},
                "metadata": {"row": row},
                "assert": [{"type": "regex", "value": answer_pattern(str(record["final_answer"]))}],
            }
            for row, record in enumerate(records, 1)
        ],
    }


def make_replies(records: Sequence[dict[str, Any]], models: Sequence[str]) -> list[dict[str, str]]:
    """Return the replies of the recorded models, as `trioeval fake-provider --replay` reads it."""
    return [
        {"prompt": record["question"].strip(), "model": model, "output": recorded["solution"]}
        for record in records
        for model in models
        if (recorded := record.get("models", {}).get(model)) is not None
    ]


def answer_pattern(answer: str) -> str:
    r"""A pattern for a reply whose last line is `A:` with this answer.

    Numbers may have thousands separators, a dollar sign and zeros behind the point, here and there.

    >>> answer_pattern("1,080")
    '(^|\\n)A:\\s*\\$?1,?080(\\.0*)?\\s*$'
    >>> answer_pattern("-2.50"), answer_pattern("blue")
    ('(^|\\n)A:\\s*-\\$?2\\.50*\\s*$', '(^|\\n)A:\\s*blue\\s*$')
    """
    number = NUMBER.fullmatch(answer.strip())
    if number is None:
        return rf"(^|\n)A:\s*{re.escape(answer.strip())}\s*$"
    sign, whole, fraction = number.groups()
    digits = whole.replace(",", "").lstrip("0") or "0"
    grouped = f"{int(digits):,}".replace(",", ",?")
    decimals = (fraction or "").rstrip("0")
    end = rf"\.{decimals}0*" if decimals else r"(\.0*)?"
    return rf"(^|\n)A:\s*{sign}\$?{grouped}{end}\s*$"


def check(document: dict[str, Any], records: Sequence[dict[str, Any]]) -> int:
    """Print passes beside recorded judgements; 1 if any row differs."""
    counts: dict[str, list[int]] = {}
    differing: list[str] = []
    for result in document["results"]["results"]:
        model, row = result["provider"]["label"], result["testCase"]["metadata"]["row"]
        record = records[row - 1]
        if model not in record.get("models", {}):
            continue
        passed, correct = result["success"], record["models"][model]["is_correct"]
        count = counts.setdefault(model, [0, 0, 0])
        count[:] = count[0] + passed, count[1] + correct, count[2] + 1
        if passed is not correct:
            said = f"{'passes' if passed else 'does not pass'} and is recorded as {correct}"
            got = last_line(result)
            differing.append(
                f"row {row}, {model}: {said}; {record['final_answer']!r} against {got!r}"
            )
    for model, (passes, recorded, rows) in counts.items():
        print(f"{model}: {passes} of {rows} pass, {recorded} are recorded as correct")
    print("\n".join(differing) or "no row differs")
    return 1 if differing else 0


def last_line(result: dict[str, Any]) -> str:
    said = result["response"]["output"] if result["response"] else result["error"]
    return str(said).strip().rpartition("\n")[2]


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
