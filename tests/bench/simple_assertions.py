"""Assertions a second that `grade` judges, of the types that compare texts; and bare Python for the same.

python tests/bench/simple_assertions.py

Target: at least 20,000 per second of the mix.
"""

import json
import re
import statistics
import time
from collections.abc import Callable

from trioeval.grading import Assertion, grade

ROUNDS = 9
ROWS = 1000
OUTPUT = "The Rhine rises in Switzerland, flows north for 1233 km, and ends in the Netherlands."
DATA = json.dumps({"river": "Rhine", "length": 1233, "ends": ["Netherlands"]})
EXACT = re.compile(r"\d+ km")

KINDS: dict[str, tuple[str, Assertion, Callable[[], object]]] = {
    "contains": (
        OUTPUT, Assertion(type="contains", value="1233 km"), lambda: "1233 km" in OUTPUT,
    ),
    "icontains": (
        OUTPUT, Assertion(type="icontains", value="NETHER"), lambda: "nether" in OUTPUT.lower(),
    ),
    "contains-any": (
        OUTPUT, Assertion(type="contains-any", value="Meuse, Rhine"),
        lambda: any(text in OUTPUT for text in ("Meuse", "Rhine")),
    ),
    "equals": (OUTPUT, Assertion(type="not-equals", value="Rhine"), lambda: OUTPUT != "Rhine"),
    "starts-with": (
        OUTPUT, Assertion(type="starts-with", value="The "), lambda: OUTPUT.startswith("The "),
    ),
    "regex": (
        OUTPUT, Assertion(type="regex", value=r"\d+ km"), lambda: EXACT.search(OUTPUT) is not None,
    ),
    "word-count": (
        OUTPUT, Assertion(type="word-count", value={"max": 20}), lambda: len(OUTPUT.split()) <= 20,
    ),
    "levenshtein": (
        "kitten", Assertion(type="levenshtein", value="sitting"), lambda: set("kitten") != set("sitting"),
    ),
    "is-refusal": (
        OUTPUT, Assertion(type="not-is-refusal"), lambda: not OUTPUT.startswith("I cannot"),
    ),
    "is-json": (DATA, Assertion(type="is-json"), lambda: json.loads(DATA) is not None),
}  # fmt: skip


def rate(judge: Callable[[], object]) -> float:
    """Assertions a second of one round."""
    began = time.perf_counter()
    for _ in range(ROWS):
        assert judge()
    return ROWS / (time.perf_counter() - began)


def main() -> None:
    """Print the figures."""
    costs: list[float] = []
    for name, (output, assertion, bare) in KINDS.items():
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(ROUNDS):
            ours.append(rate(lambda: grade(output, [assertion]).passed))  # noqa: B023 - called at once
            theirs.append(rate(bare))
        speed, base = statistics.median(ours), statistics.median(theirs)
        costs.append(1 / speed)
        print(
            f"{name:13}{speed:9,.0f}/s, best {max(ours):9,.0f}; "
            f"bare {base:11,.0f}/s, {1e6 / speed - 1e6 / base:5.1f} us more"
        )
    print(f"{'the mix':13}{len(costs) / sum(costs):9,.0f}/s; target 20,000/s")


if __name__ == "__main__":
    main()
