"""A stand-in for a coding agent: it repairs one thing per start, and remembers nothing.

It finds its earlier work in its workspace, like an agent. When the tests pass it creates the file DONE.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

REPAIRS = {
    "test_initials": ("word[0] for", "word[0].upper() for"),
    "test_is_palindrome": ("in text if", "in text.lower() if"),
    "test_split": (
        "[cents // people] * people",
        "[cents // people + (place < cents % people) for place in range(people)]",
    ),
    "test_total": ("sum(prices[1:])", "sum(prices)"),
    "test_with_tax": ("percent // 10", "percent // 100"),
    "test_1_days": ("30, 31, 30, 30]", "30, 31, 30, 31]"),
    "test_2_is_leap": ("year % 4 == 0", "year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)"),
    "test_3_days_in": ("DAYS[month] +", "DAYS[month - 1] +"),
    "test_4_day_of_year": (" + day - 1", " + day"),
}


def failing_tests() -> list[str]:
    command = [sys.executable, "-m", "unittest", "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stderr, file=sys.stderr)
    return re.findall(r"^(?:FAIL|ERROR): (\w+)", done.stderr, re.MULTILINE)


def post(kind: str, text: str) -> None:
    """Post on the message bus of the case."""
    bus = [os.environ["TRIOEVAL_PYTHON"], "-P", "-m", "trioeval", "bus", "post"]
    subprocess.run([*bus, "--type", kind, text], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    failing = failing_tests()
    if failing:
        wrong, right = REPAIRS[failing[0]]
        for file in Path.cwd().glob("[!t]*.py"):
            file.write_text(file.read_text().replace(wrong, right))
        failing = failing_tests()
    if failing:
        print(f"{len(failing)} tests still fail: {', '.join(failing)}")
    else:
        print("all tests pass")
        post("FACT", f"the tests of {os.environ['TRIOEVAL_CASE']} pass")
        Path("DONE").touch()


if __name__ == "__main__":
    main()
