"""What items are called: by their test and who is asked, each other than all others of its file."""

import re
from collections.abc import Iterator

import attrs

from trioeval.report import inert
from trioeval.report.github import without_commands
from trioeval.report.json_text import shallow
from trioeval.suite import Expansion, Step

_TITLE = 80  # characters of what a test is called
_LABEL = 60  # characters of the name of a provider or prompt
_SEPARATOR = re.compile(r"::+")
"""What separates the parts of the names of items."""


@attrs.define
class Names:
    """Gives every name once: a second one of the same kind gets a number."""

    encoding: str = "utf-8"
    """Characters that it has not are told by their escapes: names go into the environment of the process."""
    _taken: dict[str, int] = attrs.field(init=False, factory=dict)

    def only(self, name: str) -> str:
        """The name, or one like it that nothing else has.

        Example:
            >>> names = Names()
            >>> names.only("a::b"), names.only("a::b")
            ('a:b', 'a:b#2')
        """
        plain = without_commands(_SEPARATOR.sub(":", name))
        plain = plain.encode(self.encoding, "backslashreplace").decode(self.encoding)
        while True:
            count = self._taken[plain] = self._taken.get(plain, 0) + 1
            if count == 1:
                return plain
            plain = f"{plain}#{count}"


def row_names(steps: Expansion, task: str | None, names: Names) -> Iterator[str]:
    """The names of the rows of a task.

    Args:
        steps: Its rows.
        task: Its id, which stands before the test; None where there is only one.
        names: Those that are taken.

    Example:
        >>> from trioeval.suite import expand, parse_suite
        >>> tests = [{"vars": {"x": ["1", "2"]}}, {"description": "greets", "vars": {}}]
        >>> suite = parse_suite({"providers": ["echo"], "prompts": ["a", "b"], "tests": tests})
        >>> [*row_names(expand(suite), None, Names())][1:5]
        ['x:1[echo-b]', 'x:2[echo-a]', 'x:2[echo-b]', 'greets[echo-a]']
    """
    several = len({column.prompt.label for column in steps.columns}) > 1
    before = "" if task is None else f"{inert(task, _LABEL)}: "
    for step in steps:
        entry = steps.providers[step.provider_index]
        parts = [inert(entry.label or entry.id, _LABEL)]
        if several:
            parts.append(inert(step.column.prompt.label, _LABEL))
        if step.repeat_index:
            parts.append(f"repeat {step.repeat_index + 1}")
        yield names.only(f"{before}{_title(step)}[{'-'.join(parts)}]")


def _title(step: Step) -> str:
    test = step.test
    case = None if test.case is None else test.case.name
    said = case or test.description
    if not said:
        # No equals sign: `-k` takes none.
        said = ", ".join(f"{name}:{shallow(value)}" for name, value in step.vars.items())
    return inert(said, _TITLE) or "test"
