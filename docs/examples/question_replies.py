"""Make `question-replies.jsonl`: the replies of two invented models to the questions of this folder.

Most replies are correct. Some choose a wrong answer, or one that is not on the list, or end differently.
The output is the same each time.

python question_replies.py general-knowledge.yaml > question-replies.jsonl
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

import yaml

from trioeval.question_eval.answer import question_prompt

SHARES = {
    "quick": {"right": 70, "wrong": 14, "unlisted": 4, "missing": 8, "trailing": 4},
    "thorough": {"right": 92, "wrong": 6, "missing": 2},
}
"""The percentages of the endings of replies, by model."""
SECONDS = {"quick": (0.01, 0.03), "thorough": (0.04, 0.08)}
THOUGHTS = {
    "quick": "",
    "thorough": "Of the choices, I rule out what cannot be, and look at the rest again.\n",
}


def reply(question: dict[str, Any], ending: str, draw: random.Random) -> str:
    right = question["correctAnswers"]
    wrong = [answer for answer in question["answers"] if answer not in right]
    chosen = draw.choice(wrong if ending == "wrong" else right)
    return {
        "unlisted": "<answer>None of these</answer>",
        "missing": f"It is {chosen}.",
        "trailing": f"<answer>{chosen}</answer>\nI hope this helps!",
    }.get(ending, f"<answer>{chosen}</answer>")


def main(file: str) -> None:
    for question in yaml.safe_load(Path(file).read_text(encoding="utf-8"))["questions"]:
        prompt = question_prompt(question["question"], question["answers"])
        for model, shares in SHARES.items():
            draw = random.Random(f"{model} {question['id']}")  # noqa: S311 - the same numbers every time
            (ending,) = draw.choices(list(shares), list(shares.values()))
            output = THOUGHTS[model] + reply(question, ending, draw)
            sent, received = len(prompt) // 4, len(output) // 4
            line: dict[str, object] = {"prompt": prompt, "output": output, "model": model}
            line["latency_ms"] = round(1000 * draw.uniform(*SECONDS[model]))
            line["usage"] = {"prompt": sent, "completion": received, "total": sent + received}
            print(json.dumps(line, ensure_ascii=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
