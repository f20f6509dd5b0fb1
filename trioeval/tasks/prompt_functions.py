"""Prompts that a program of the user's makes when a row runs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from trioeval.errors import ScriptError
from trioeval.grading import output_text
from trioeval.providers.generic.transform import plain
from trioeval.suite import Prompt
from trioeval.suite.models import PromptFunction
from trioeval.tasks.scripts import LIMIT, Scripts


@attrs.frozen
class MadePrompt:
    """What a function made for one row."""

    raw: str
    """A template, as the text of any other prompt; a list of messages as JSON."""
    config: Mapping[str, Any]
    """That of the prompt, and over it what the function says."""


async def render_function(
    prompt: Prompt,
    variables: Mapping[str, Any],
    provider: Mapping[str, Any],
    scripts: Scripts,
    limit: float = LIMIT,
) -> MadePrompt:
    """The text of a prompt that has a function. Always a checkpoint.

    Args:
        prompt: One with a function.
        variables: Those of the row.
        provider: Its `id`, and its `label` if it has one.
        scripts: What runs the function.
        limit: Seconds that it may take, > 0; a `timeout` in the config of the prompt, in milliseconds, is
            for programs and wins.

    Raises:
        ScriptError: It failed, took longer, or gave nothing that could be a prompt.
    """
    if prompt.function is None:
        msg = "a prompt without a function was to be made by one; please report this"
        raise RuntimeError(msg)
    named = {key: value for key, value in provider.items() if value is not None}
    seen = plain({"vars": dict(variables), "provider": named, "config": dict(prompt.config)})
    value = await _made(prompt.function, seen, scripts, limit)
    match value:
        case str():
            return MadePrompt(value, prompt.config)
        case {"prompt": made}:
            config = value.get("config") or {}
            if not isinstance(config, Mapping):
                raise ScriptError(f"{_name(prompt.function)}: config must be an object")
            return MadePrompt(output_text(made), {**prompt.config, **config})
        case dict() | list():
            return MadePrompt(output_text(value), prompt.config)
        case _:
            what = f"must return text, messages, or an object with prompt, got {json.dumps(value)}"
            raise ScriptError(f"{_name(prompt.function)} {what}")


async def _made(
    function: PromptFunction, seen: Mapping[str, Any], scripts: Scripts, limit: float
) -> Any:
    file = Path(function.target)
    if function.kind == "python" and function.function:
        return await scripts.call(file, function.function, [seen], limit)
    argument = output_text(seen)
    if function.kind == "python":
        return await scripts.python_file(file, argument, limit)
    timeout_ms = seen["config"].get("timeout")
    if isinstance(timeout_ms, int | float) and timeout_ms > 0:
        limit = timeout_ms / 1000
    return await scripts.program(function.target, argument, limit)


def _name(function: PromptFunction) -> str:
    named = Path(function.target).name
    return f"{named}:{function.function}" if function.function else named
