"""Features that follow from a model's name: reasoning, the Responses API, JSON schemas.

Services do not report these, and a wrong request is an error, so the model families are data here. An entry
can override them: `isReasoningModel` in its config, `chat:` or `responses:` in its id.
"""

import re

REASONING_MODELS = (
    r"o\d+(-|$)",
    r"gpt-[5-9](?!\d|(\.\d+)?-chat)",
    r"codex-mini|computer-use",
)
"""Beginnings of names of models that accept neither a temperature nor `max_tokens`."""

RESPONSES_MODELS = (
    r"gpt-5\.([6-9]|\d\d)",
    r"gpt-[6-9](?!\d)",
    r"(o\d+|gpt-5)[\w.]*(-\w+)*-(pro|deep-research|codex)(-|$)",
    r"codex-|computer-use",
)
"""Beginnings of names of models that are called at `/responses`."""

COMPLETION_MODELS = (r"gpt-3\.5-turbo-instruct", r"(babbage|davinci)-002$")
"""Beginnings of names of models that are called at `/completions`."""

SCHEMA_MODELS = (
    r"gpt-4o(-mini)?(-2024-(0[89]|1\d)|-2025|-20[3-9]\d|$|-search)",
    r"gpt-4\.[1-9]",
    r"gpt-[5-9](?!\d)",
    r"o[1-9](-(?!mini-2024|preview)|$)",
)
"""Beginnings of names of models that support replies in a JSON schema."""

_REASONING = re.compile("|".join(REASONING_MODELS))
_RESPONSES = re.compile("|".join(RESPONSES_MODELS))
_COMPLETIONS = re.compile("|".join(COMPLETION_MODELS))
_SCHEMAS = re.compile("|".join(SCHEMA_MODELS))


def is_reasoning(model: str) -> bool:
    """Return whether a model reasons before it replies.

    Example:
        >>> is_reasoning("openai/o3-mini"), is_reasoning("gpt-4.1")
        (True, False)
    """
    return _REASONING.match(_name(model)) is not None


def needs_responses(model: str) -> bool:
    """Return whether an OpenAI model is called at `/responses`.

    Example:
        >>> needs_responses("gpt-5.6"), needs_responses("gpt-5.1")
        (True, False)
    """
    return _RESPONSES.match(_name(model)) is not None


def needs_completions(model: str) -> bool:
    """Return whether an OpenAI model completes texts instead of answering messages.

    Example:
        >>> needs_completions("gpt-3.5-turbo-instruct"), needs_completions("gpt-3.5-turbo")
        (True, False)
    """
    return _COMPLETIONS.match(_name(model)) is not None


def takes_schemas(model: str) -> bool:
    """Return whether a model supports replies in a JSON schema.

    Example:
        >>> takes_schemas("gpt-4.1-mini"), takes_schemas("gpt-4-turbo"), takes_schemas("o1-preview")
        (True, False, False)
    """
    return _SCHEMAS.match(_name(model)) is not None


def _name(model: str) -> str:
    """Return the name without vendor and fine-tuning prefixes."""
    return model.removeprefix("ft:").rsplit("/", 1)[-1]
