"""Microseconds of this process for a prompt that `Templates.render_prompt` makes, by the kind of prompt.

python tests/bench/render_prompts.py
"""

import functools
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from trioeval.templates import Templates
from trioeval.templates.expressions import compile_condition

ROUNDS = 9
PROMPTS = 3000
TEXTS = 300
FILLER = "Answer in one sentence, and say where you know it from. " * 7
NAMES = "{{ persona }}\n\nQuestion about {{ topic }}: {{ question }}\n" + FILLER
CONDITION = NAMES + "{% if strict %}Do not guess.{% else %}Guess if you must.{% endif %}"
LOOP = NAMES + "{% for word in words %}{{ loop.index }}. {{ word | title }}\n{% endfor %}"
CHAT = (
    '[{"role": "system", "content": "{{ persona }}. '
    + FILLER
    + '"}, {"role": "user", "content": "{{ topic }}: {{ question }}"}]'
)
VARIABLES: Mapping[str, Any] = {
    "persona": "You are a patient teacher.",
    "topic": "rivers of Europe",
    "question": "Which one flows through the most countries?\n",
    "strict": True,
    "words": ["danube", "rhine", "volga", "oder"],
}
NESTED = {
    **VARIABLES,
    "question": "Which one of the {{ topic | upper }} is longest, {{ persona }}?",
}


def microseconds(function: Callable[[int], object], times: int) -> float:
    """The median of the rounds, for one call."""
    spent = []
    for turn in range(ROUNDS):
        started = time.process_time()
        for number in range(turn * times, (turn + 1) * times):
            function(number)
        spent.append((time.process_time() - started) / times)
    return statistics.median(spent) * 1e6


def render(templates: Templates, text: str, variables: Mapping[str, Any], _number: int) -> str:
    """The prompt."""
    return templates.render_prompt(text, variables)


def main() -> None:
    """Print the figures."""
    templates = Templates()
    kinds: Mapping[str, tuple[str, Mapping[str, Any]]] = {
        "only names": (NAMES, VARIABLES),
        "with a condition": (CONDITION, VARIABLES),
        "with a loop and filters": (LOOP, VARIABLES),
        "JSON chat": (CHAT, VARIABLES),
        "variable in variable": (NAMES, NESTED),
    }
    for name, (text, variables) in kinds.items():
        made = functools.partial(render, templates, text, variables)
        print(f"{name}: {microseconds(made, PROMPTS):.1f} µs")

    def new_text(number: int) -> str:
        return templates.render(f"{LOOP}{number}", VARIABLES)

    print(f"a new text with a loop and filters: {microseconds(new_text, TEXTS):.0f} µs")
    holds = compile_condition("strict and words.length === 4")
    print(f"a condition of a column: {microseconds(lambda _: holds(VARIABLES), PROMPTS):.1f} µs")


if __name__ == "__main__":
    main()
