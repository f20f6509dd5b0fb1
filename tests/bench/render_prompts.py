"""Prompts a second that `Templates.render_prompt` makes, and bare jinja2 for the same text, in turns.

python tests/bench/render_prompts.py
"""

import functools
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jinja2

from trioeval.templates import Templates

ROUNDS = 9
PROMPTS = 3000
FILLER = "Answer in one sentence, and say where you know it from. " * 7
PLAIN = (
    "{{ persona }}\n\nQuestion about {{ topic }}: {{ question }}\n"
    "{% if strict %}Do not guess.{% else %}Guess if you must.{% endif %}\n" + FILLER
)
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
}
NESTED = {
    **VARIABLES,
    "question": "Which one of the {{ topic | upper }} is longest, {{ persona }}?",
}


def rate(render: Callable[[], str]) -> float:
    """Prompts a second of one round."""
    started = time.perf_counter()
    for _ in range(PROMPTS):
        render()
    return PROMPTS / (time.perf_counter() - started)


def main() -> None:
    """Print the figures."""
    templates = Templates()
    environment = jinja2.Environment(autoescape=False)  # noqa: S701, prompts are not HTML
    kinds = {
        "plain": (PLAIN, VARIABLES),
        "JSON chat": (CHAT, VARIABLES),
        "variable in variable": (PLAIN, NESTED),
    }
    for name, (text, variables) in kinds.items():
        bare = environment.from_string(text)
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(ROUNDS):
            ours.append(rate(functools.partial(templates.render_prompt, text, variables)))
            theirs.append(rate(functools.partial(bare.render, variables)))
        speed, base = statistics.median(ours), statistics.median(theirs)
        print(
            f"{name}: {speed:,.0f} prompts/s, best {max(ours):,.0f}; "
            f"bare jinja2 {base:,.0f}/s, {base / speed:.1f} × ours"
        )


if __name__ == "__main__":
    main()
