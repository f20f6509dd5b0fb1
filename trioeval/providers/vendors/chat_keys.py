"""What an entry may say of its chat completions, and the part of the body that follows from it.

Pure. A default is what is sent where neither config nor environment says otherwise; a null in the config
takes it away. Models that think before they answer take none of the defaults, and get nothing that they
would refuse.
"""

from collections.abc import Mapping
from typing import Any

from trioeval.errors import Problem
from trioeval.providers.config import (
    Key,
    config_path,
    is_count,
    is_flag,
    is_integer,
    is_json_list,
    is_json_object,
    is_number,
    is_text,
    is_texts,
    show,
    to_snake,
)
from trioeval.providers.endpoint import ENDPOINT_KEYS, Service
from trioeval.providers.vendors.openai_models import is_reasoning
from trioeval.providers.vendors.streams import METRICS

DEFAULTS: Mapping[str, float] = {"temperature": 0, "max_tokens": 1024}
"""What ordinary models are sent."""

MOST_LOG_PROBS = 20
"""How many alternatives a token may be asked for."""

REASONING_DEFAULTS = frozenset({"max_completion_tokens"})
"""Keys whose defaults are for reasoning models; those of all others are for ordinary ones."""

SAMPLING = ("temperature", "top_p")
"""What reasoning models do not take, unless they are told not to think."""


def _is_alternatives(value: Any) -> bool:
    return is_integer(value) and 0 <= value <= MOST_LOG_PROBS


def _is_stop(value: Any) -> bool:
    return isinstance(value, str) or is_texts(value)


def _is_choice(value: Any) -> bool:
    return is_text(value) or is_json_object(value)


PARAMETERS = (
    Key("temperature", "a number", is_number),
    Key("max_tokens", "a whole number of at least 1", is_count),
    Key("max_completion_tokens", "a whole number of at least 1", is_count),
    Key("top_p", "a number", is_number),
    Key("presence_penalty", "a number", is_number),
    Key("frequency_penalty", "a number", is_number),
    Key("seed", "a whole number", is_integer),
    Key("stop", "text or a list of texts", _is_stop),
    Key("n", "a whole number of at least 1", is_count),
    Key("logprobs", "true or false", is_flag),
    Key("top_logprobs", f"a whole number from 0 to {MOST_LOG_PROBS}", _is_alternatives),
    Key("response_format", "an object", is_json_object),
    Key("tools", "a list", is_json_list),
    Key("tool_choice", "text or an object", _is_choice),
    Key("parallel_tool_calls", "true or false", is_flag),
    Key("functions", "a list", is_json_list),
    Key("function_call", "text or an object", _is_choice),
    Key("reasoning_effort", "text", is_text),
    Key("verbosity", "text", is_text),
    Key("modalities", "a list of texts", is_texts),
    Key("audio", "an object", is_json_object),
    Key("prediction", "an object", is_json_object),
    Key("service_tier", "text", is_text),
    Key("user", "text", is_text),
    Key("metadata", "an object", is_json_object),
    Key("store", "true or false", is_flag),
    Key("prompt_cache_key", "text", is_text),
)
"""Keys that go into the body under their own names."""

CALL_KEYS = (
    *PARAMETERS,
    Key("passthrough", "an object", is_json_object),
    Key("omitDefaults", "true or false", is_flag),
    Key("showThinking", "true or false", is_flag),
)
"""Keys that may be different for one call."""

ENTRY_KEYS = (
    Key("isReasoningModel", "true or false", is_flag),
    METRICS,
)
"""Keys that are the same for all calls of an entry."""

KEYS = (*CALL_KEYS, *ENTRY_KEYS, *ENDPOINT_KEYS)
"""All keys of an entry."""

CALL_NAMES = frozenset(to_snake(key.name) for key in CALL_KEYS)
"""Those of `CALL_KEYS`, in snake_case."""

OWN_NAMES = CALL_NAMES | {to_snake(key.name) for key in ENTRY_KEYS}
"""All but those of the endpoint, in snake_case."""

_BY_NAME = {key.name: key for key in PARAMETERS}


def read_variables(
    service: Service, environ: Mapping[str, str]
) -> tuple[dict[str, Any], list[Problem]]:
    """The defaults that the environment sets, by key, and what is wrong with them."""
    defaults: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, variable in service.variables.items():
        written = environ.get(variable, "").strip()
        if not written:
            continue
        key, value = _BY_NAME[name], _number(written)
        if value is not None and key.check(value):
            defaults[name] = value
        else:
            fault = f"the environment variable {variable} must be {key.right}, got {show(written)}"
            problems.append(Problem(config_path(name), fault))
    return defaults, problems


def check_body(service: Service, values: Mapping[str, Any]) -> list[Problem]:
    """What of the values, each of them right by itself, cannot be sent."""
    problems = [
        Problem(config_path(name), f"{service.family} does not take it", "leave it out")
        for name, value in values.items()
        if name in service.rejects and value is not None
    ]
    passthrough = values.get("passthrough") or {}
    if passthrough.get("stream"):
        fault = "whether a reply is streamed follows from what is measured"
        hint = 'leave it out; metrics: ["ttft"] streams, and times the first token'
        problems.append(Problem(".config.passthrough.stream", fault, hint))
    if "messages" in passthrough:
        fault = "the messages are those of the prompt"
        problems.append(Problem(".config.passthrough.messages", fault, "leave it out"))
    return problems


def body_parameters(
    service: Service, model: str, values: Mapping[str, Any], variables: Mapping[str, Any]
) -> dict[str, Any]:
    """What the body holds besides model and messages, and what is passed through.

    Args:
        service: How the service is reached.
        model: The model's name, as the service knows it.
        values: What the entry says, by key in snake_case; None takes a default away.
        variables: The defaults that the environment sets.
    """
    reasons = values.get("is_reasoning_model")
    if reasons is None:
        reasons = is_reasoning(model)
    defaults = {**({} if values.get("omit_defaults") else DEFAULTS), **variables}
    body = {
        name: value for name, value in defaults.items() if (name in REASONING_DEFAULTS) == reasons
    }
    if values.get("max_completion_tokens") is not None:
        body.pop("max_tokens", None)
    body |= {name: values[name] for name in _BY_NAME if name in values}
    if reasons:
        body = _for_reasoning(body)
    return {
        service.renames.get(name, name): value for name, value in body.items() if value is not None
    }


def drop_sampling(body: Mapping[str, Any], effort: Any) -> dict[str, Any]:
    """A body without what a model that thinks before it answers does not take.

    Args:
        body: Of a request.
        effort: How long the model is to think; told not to, it takes everything.

    Example:
        >>> drop_sampling({"temperature": 0, "seed": 1}, "low")
        {'seed': 1}
    """
    dropped = SAMPLING if effort != "none" else ()
    return {name: value for name, value in body.items() if name not in dropped}


def _for_reasoning(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a reasoning model takes of a body, its limit under the name that it knows."""
    taken = drop_sampling(body, body.get("reasoning_effort"))
    limit = taken.pop("max_tokens", None)
    if limit is not None and taken.get("max_completion_tokens") is None:
        taken["max_completion_tokens"] = limit
    return taken


def _number(text: str) -> float | None:
    """The number that a text is, whole if it is written so; None if it is none."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None
