# Separate from `evaluation.grader_calls`: together they exceed 600 lines.
"""The prompts of judges: the user's or the assertion type's own, filled in with variables.

Values are never templates themselves: an output may contain any marks, and they stay as they are. Objects
appear in a prompt as JSON, unless the environment allows templates to access them. An output that is JSON is
parsed first, so that its text is that of its value.
"""

from collections.abc import Callable, Mapping
from typing import Any

from trioeval.errors import GradingError, TemplateError
from trioeval.suite.grader_entries import are_messages
from trioeval.text import json_text, parse_json

PARSED = frozenset({"answer", "completion", "output", "outputs"})
"""Names of variables that contain outputs."""

_MESSAGE_KEYS = frozenset({"content", "contents", "messages", "role"})
"""An object with one of these is a prompt; any other object has a prompt for each part."""


def chosen_prompt(own: str, rubric_prompt: Any, part: int | str | None) -> str:
    """Return the prompt to fill in.

    Args:
        own: The prompt of the assertion type.
        rubric_prompt: The user's prompt from the suite; None without one.
        part: The key of the wanted prompt if there are several; None for a type that makes a single request,
            which uses the whole prompt.

    Example:
        >>> chosen_prompt("own", ["first", "second"], 1), chosen_prompt("own", "theirs", None)
        ('second', 'theirs')
        >>> chosen_prompt("own", ["first", "second"], None)
        '["first","second"]'
        >>> chosen_prompt("own", "theirs", 1)
        'own'
    """
    if not rubric_prompt:
        return own
    if part is None:
        return _text_of(rubric_prompt)
    return _text_of(_part_of(rubric_prompt, part)) or own


def _part_of(rubric_prompt: Any, part: int | str) -> Any:
    match rubric_prompt:
        case list() | tuple() if isinstance(part, int) and part < len(rubric_prompt):
            found = rubric_prompt[part]
            # A single message instead of a prompt means its text.
            return found.get("content") if isinstance(found, Mapping) else found
        case Mapping() if rubric_prompt.keys().isdisjoint(_MESSAGE_KEYS):
            return rubric_prompt.get(part)
        case _:
            return None


def _text_of(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)


def named_values(names: Mapping[str, Any], *, open_objects: bool) -> dict[str, Any]:
    """Return the values that prompts may name, as they appear in them.

    Args:
        names: Variables, and the values that the type adds.
        open_objects: Whether templates may access members of objects.

    Example:
        >>> named_values({"output": '{"a": 1}', "tags": ["x", {"y": 2}]}, open_objects=False)
        {'output': '{"a":1}', 'tags': ['x', '{"y":2}']}
    """
    found = {name: _parsed(value) if name in PARSED else value for name, value in names.items()}
    if open_objects:
        return found
    return {name: _closed(value) for name, value in found.items()}


def _parsed(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_parsed(member) if isinstance(member, str) else member for member in value]
    if not isinstance(value, str):
        return value
    try:
        return parse_json(value)
    except ValueError:
        return value


def _closed(value: Any) -> Any:
    match value:
        case Mapping():
            return json_text(value)
        case list() | tuple():
            return [json_text(one) if isinstance(one, Mapping | list) else one for one in value]
        case _:
            return value


def render_prompt(
    text: str, names: Mapping[str, Any], fill: Callable[[str, Mapping[str, Any]], str]
) -> str:
    """Fill in a prompt: the texts inside of it if it is JSON, otherwise the whole text.

    Args:
        text: The prompt.
        names: The values that it may name.
        fill: Renders a text; raises `TemplateError`.

    Raises:
        GradingError: It cannot be rendered, or the result is empty.
    """
    try:
        try:
            document = parse_json(text)
        except ValueError:
            return _checked_not_empty(fill(text, names))
        if not isinstance(document, list | dict):
            return _checked_not_empty(fill(text, names))
        filled = _inside(document, names, fill)
        if are_messages(filled):
            _checked_not_empty("".join(str(one.get("content", one)) for one in filled))
        return json_text(filled)
    except TemplateError as error:
        msg = f"the grading prompt cannot be rendered: {error}"
        raise GradingError(msg) from error
    except RecursionError as error:
        msg = "the grading prompt cannot be rendered: it is nested too deeply"
        raise GradingError(msg) from error


def _checked_not_empty(prompt: str) -> str:
    if not prompt.strip():
        msg = "the grading prompt is empty: none of its variables has a value"
        raise GradingError(msg)
    return prompt


def _inside(
    value: Any, names: Mapping[str, Any], fill: Callable[[str, Mapping[str, Any]], str]
) -> Any:
    match value:
        case str():
            return fill(value, names)
        case list():
            return [_inside(part, names, fill) for part in value]
        case dict():
            return {key: _inside(part, names, fill) for key, part in value.items()}
        case _:
            return value
