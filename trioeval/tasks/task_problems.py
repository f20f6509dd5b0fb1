"""Where the problems of a task stand in the file of its suite. Pure.

What a task has from the top of the file is wrong at the top, and is told there, once for all tasks.
"""

from collections.abc import Iterable

import attrs

from trioeval.errors import Problem
from trioeval.suite import Suite, show_path
from trioeval.suite.paths import DocumentPath, read_path
from trioeval.suite.strict import snake


def in_the_file(problems: Iterable[Problem], top: Suite, place: int) -> list[Problem]:
    """Problems of the suite of a task, with their paths in the whole file.

    Args:
        problems: With paths in the task's own suite.
        top: The whole suite.
        place: The position of the task.

    Example:
        >>> from trioeval.suite import parse_suite
        >>> task = {"type": "prompt_eval", "providers": ["exec:cat", "echo"]}
        >>> suite = parse_suite({"providers": ["echo"], "tasks": [task]})
        >>> found = [Problem("$.providers[0]", "no"), Problem("$.providers[1]", "no")]
        >>> [problem.path for problem in in_the_file(found, suite, 0)]
        ['$.tasks[0].providers[0]', '$.providers[0]']
    """
    return [
        attrs.evolve(problem, path=show_path(_moved(read_path(problem.path), top, place)))
        if problem.file is None
        else problem
        for problem in problems
    ]


def _moved(path: DocumentPath, top: Suite, place: int) -> DocumentPath:
    own = top.tasks[place].suite
    match path:
        case ("providers", int(position), *rest) if position < len(own.providers):
            entry = own.providers[position]
            if entry in top.providers:
                return ("providers", top.providers.index(entry), *rest)
        case (str(key), *_) if _is_from_the_top(key, own, top):
            return path
        case _:
            pass
    return ("tasks", place, *path)


def _is_from_the_top(key: str, own: Suite, top: Suite) -> bool:
    """Whether a task says nothing of its own under a key of its suite."""
    if key in {"prompts", "providers", "scenarios", "tests"}:
        return False
    field = snake(key)
    return getattr(own, field, None) == getattr(top, field, None)
