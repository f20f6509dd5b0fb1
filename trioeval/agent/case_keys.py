"""Keys and assertions that only tests of tasks of type `agent` may have."""

from collections.abc import Iterator, Mapping
from typing import Any

from trioeval.agent.model import DONE_TYPE, Case
from trioeval.documents.mistakes import Mistake, MistakenError, ignore_key
from trioeval.documents.structure import fields_by_key, snake
from trioeval.grading.registry import split_type
from trioeval.suite.test_form import ExtraForm

KEYS = tuple(fields_by_key(Case))
"""Keys of a test that only tests of such tasks have."""
SPELLED = frozenset((*KEYS, *map(snake, KEYS)))
"""The same in both spellings."""
AGENT_TYPES = frozenset({DONE_TYPE, "command", "file-contains", "file-exists", "file-json"})
"""Types of assertions that need the workspace of a case, or the end of its agent."""


def form_without_cases() -> ExtraForm:
    """Return the form of tests of tasks of another type: these keys and assertions are refused."""
    return ExtraForm(
        keys=SPELLED,
        structure=_refuse,
        allowed=(),
        refuse=refuse_by_default,
        misplaced=_misplaced_type,
    )


def _refuse(value: Any, _wanted: Any) -> None:
    """Refuse keys of cases; a mere id, which tests of other tools often have, is only ignored."""
    mistakes = [_misplaced(f"{key} belongs to tests of tasks of type agent", key) for key in value]
    if value.keys() != {"id"}:
        raise MistakenError(*mistakes)
    ignore_key(*mistakes)


def refuse_by_default(default_test: Mapping[str, Any]) -> None:
    """Refuse keys of cases in a default test."""
    if keys := [key for key in default_test if key in SPELLED]:
        messages = (f"{key} belongs to single tests, not to defaultTest" for key in keys)
        raise MistakenError(*map(_misplaced, messages, keys))


def _misplaced(message: str, key: str) -> Mistake:
    return Mistake(message, "remove it", at=(key,), key=True)


def _misplaced_type(name: str) -> Iterator[Mistake]:
    """Yield a mistake if an assertion type needs an agent."""
    base, _ = split_type(name)
    if base in AGENT_TYPES:
        yield Mistake(f"{base} is only for tests of tasks of type agent", at=("type",))
