# Separate from `providers.vendor_hosts`: one module for each vendor, imported when a suite names it.
"""Hugging Face inference: chat completions of its router, tasks of its API, and dedicated endpoints."""

import re
from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.errors import Problem
from trioeval.providers.base import Reply
from trioeval.providers.config import (
    EntryContext,
    Key,
    ProviderSettings,
    is_amount,
    is_count,
    is_flag,
    is_number,
    is_text,
    to_snake,
)
from trioeval.providers.http.adapter import Adapter
from trioeval.providers.http.endpoint import Endpoint, Service, read_endpoint
from trioeval.providers.http.replies import (
    field,
    objects,
    read_json,
    read_number,
    read_object,
    text,
)
from trioeval.providers.http.wire import HttpReply
from trioeval.providers.other_keys import OtherKeys
from trioeval.providers.vendors.openai_chat import ChatAdapter
from trioeval.text import json_text

ROUTER = Service(
    family="huggingface",
    default_url="https://router.huggingface.co/v1",
    key_variables=("HF_TOKEN", "HF_API_TOKEN"),
    hosts=("*.*.*.endpoints.huggingface.cloud", "api-inference.huggingface.co"),
    url_keys="apiEndpoint, apiBaseUrl",
)
"""Chat completions."""

INFERENCE = attrs.evolve(
    ROUTER, default_url="https://router.huggingface.co/hf-inference", host_path="/hf-inference"
)
"""All other tasks."""

ROWS = "rows"
"""The member with the body of a reply that is a list."""

_MODEL = re.compile(r"[\w.-]+(/[\w.-]+)*(:[\w.-]+)?")
_CHAT_PATH = "/chat/completions"


class TaskAdapter(Adapter):
    """One task of the inference API, for one model or one endpoint."""

    entry_keys = (Key("apiEndpoint", "text", is_text, secret=True),)
    other_keys = OtherKeys(sends=False, not_here=frozenset({"metrics"}))
    show_thinking = False

    @classmethod
    def locate(
        cls,
        service: Service,
        model: str,
        values: Mapping[str, Any],
        environ: Mapping[str, str],
    ) -> tuple[Endpoint | None, list[Problem]]:
        """Return the endpoint: `apiEndpoint` is the URL itself, and may be public."""
        whole = values.get("api_endpoint")
        if whole is None:
            return read_endpoint(service, model, values, environ)
        public = attrs.evolve(service, needs_key=False)
        endpoint, problems = read_endpoint(
            public, model, {**values, "api_base_url": whole, "api_host": None}, environ
        )
        return endpoint, _renamed(problems)

    @property
    def url(self) -> str:
        """The URL of the model, or of the endpoint."""
        if self.given.get("api_endpoint") is not None:
            return self.endpoint.base_url
        return self.endpoint.url(f"models/{self.endpoint.model}")

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the text unchanged as the input."""
        return {"inputs": prompt}

    def load(self, reply: HttpReply) -> dict[str, Any]:
        """Return the body; most tasks reply with a list."""
        data = read_json(reply.body)
        return {ROWS: data} if isinstance(data, list) else read_object(self.endpoint, reply)

    def _completed(self, answer: Reply, reply: HttpReply, data: dict[str, Any]) -> Reply:
        return attrs.evolve(super()._completed(answer, reply, data), raw=data.get(ROWS, data))

    def _sent(self, *names: str) -> dict[str, Any]:
        """Return those of the values that are set."""
        found = {name: self.given.get(name) for name in names}
        return {name: value for name, value in found.items() if value is not None}


GENERATION = (
    Key("top_k", "a whole number of at least 1", is_count),
    Key("top_p", "a number", is_number),
    Key("temperature", "a number", is_number),
    Key("repetition_penalty", "a number", is_number),
    Key("max_new_tokens", "a whole number of at least 1", is_count),
    Key("max_time", "a number of seconds of at least 0", is_amount),
    Key("return_full_text", "true or false", is_flag),
    Key("num_return_sequences", "a whole number of at least 1", is_count),
    Key("do_sample", "true or false", is_flag),
    Key("use_cache", "true or false", is_flag),
    Key("wait_for_model", "true or false", is_flag),
)
"""Parameters of text generation, sent under their names."""

OPTIONS = GENERATION[-2:]
"""Keys of the other tasks that say how the service handles a request."""


class TextAdapter(TaskAdapter):
    """Text generation."""

    call_keys = GENERATION

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the parameters; by default the reply does not repeat the prompt."""
        names = (key.name for key in GENERATION)
        return {"parameters": {"return_full_text": False, **self._sent(*names)}}

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the first generated text."""
        if data.get(ROWS) == []:
            raise self.failure("empty_reply", "the reply has no text", reply)
        generated = _first(data).get("generated_text")
        if not isinstance(generated, str):
            raise self.failure("malformed_reply", "the reply has no generated_text", reply)
        return Reply(output=generated)


class ClassificationAdapter(TaskAdapter):
    """Text classification: the score of each label."""

    call_keys = ()
    returns = "classification"

    def fixed_body(self) -> Mapping[str, Any]:
        """Return no parameters."""
        return {"parameters": {}}

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the scores by label, as JSON text."""
        rows = _single(data.get(ROWS))
        scores = {text(row, "label"): read_number(field(row, "score")) for row in rows}
        if not scores or None in scores or None in scores.values():
            raise self.failure("malformed_reply", "the reply has no labels with scores", reply)
        return Reply(output=json_text(scores))


class TokenAdapter(TaskAdapter):
    """Token classification: the best score of each kind of entity."""

    call_keys = (Key("aggregation_strategy", "text", is_text), *OPTIONS)
    returns = "classification"

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the strategy and the options."""
        strategy = self.given.get("aggregation_strategy") or "simple"
        options = {"use_cache": True, "wait_for_model": False}
        return {
            "parameters": {"aggregation_strategy": strategy},
            "options": options | self._sent(*options),
        }

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the scores by kind of entity, as JSON text; without an entity, an empty object."""
        rows = data.get(ROWS)
        if not isinstance(rows, list):
            raise self.failure("malformed_reply", "the reply is not a list of entities", reply)
        best: dict[str, float] = {}
        for row in rows:
            entity, score = text(row, "entity_group"), read_number(field(row, "score"))
            if entity is None or score is None:
                fault = "the reply has an entity without entity_group and score"
                raise self.failure("malformed_reply", fault, reply)
            best[entity] = max(score, best.get(entity, score))
        return Reply(output=json_text(best))


class VectorAdapter(TaskAdapter):
    """Feature extraction: the vector of a text."""

    call_keys = OPTIONS
    returns = "embedding"

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the options."""
        return {"options": self._sent(*(key.name for key in OPTIONS))}

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the vector as a list of numbers."""
        vector = [read_number(value) for value in _single(data.get(ROWS))]
        if not vector or None in vector:
            raise self.failure("malformed_reply", "the reply has no vector", reply)
        return Reply(output=vector)


TASKS: Mapping[str, type[TaskAdapter]] = {
    "text-generation": TextAdapter,
    "text-classification": ClassificationAdapter,
    "token-classification": TokenAdapter,
    "feature-extraction": VectorAdapter,
}
"""The adapter of each task besides chat."""

CHAT_KEYS = ("apiEndpoint", "inferenceProvider", "chatCompletion", "max_new_tokens")
"""Keys of chat that chat completions of other services do not have."""

_OF_TASKS = {key.name for key in GENERATION} - {"top_p", "temperature", "max_new_tokens"}


def read(
    prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> ProviderSettings | list[Problem]:
    """Read an entry `huggingface:<task>:<model>`; see `Reader`."""
    task, _, model = rest.partition(":")
    if task == "sentence-similarity":
        hint = f"use {prefix}:feature-extraction:{model or '<model>'}, and compare its vectors"
        return [Problem(".id", f'"{prefix}:{task}" is not supported', hint)]
    if (task not in TASKS and task != "chat") or _MODEL.fullmatch(model) is None:
        hint = f"write {prefix}:<task>:<model>, where the task is {', '.join(('chat', *TASKS))}"
        return [Problem(".id", f'"{prefix}:{rest}" is not a valid Hugging Face id', hint)]
    own = {to_snake(str(name)): value for name, value in config.items()}
    if task == "text-generation":
        chats = own.get("chat_completion")
        if chats is None:
            chats = "/v1/chat" in str(own.get("api_endpoint") or "")
        if chats is True:
            return _read_chat(model, config, context)
        config = {
            name: value
            for name, value in config.items()
            if to_snake(str(name)) != "chat_completion" or value is not False
        }
    if task == "chat":
        return _read_chat(model, config, context)
    return TASKS[task].read_entry(INFERENCE, model, config, context.environ)


def _read_chat(
    model: str, config: Mapping[str, Any], context: EntryContext
) -> ProviderSettings | list[Problem]:
    """Read an entry of chat completions, whose own keys are translated first."""
    names = {to_snake(str(name)): name for name in config}
    translated, service = dict(config), ROUTER
    problems = [
        Problem(f".config.{names[name]}", "must be text")
        for name in ("api_endpoint", "inference_provider")
        if name in names and not is_text(config[names[name]])
    ]
    if problems:
        return problems
    translated.pop(names.get("chat_completion", ""), None)
    whole = translated.pop(names.get("api_endpoint", ""), None)
    if whole is not None and "api_base_url" not in names:
        service = attrs.evolve(ROUTER, needs_key=False)
        translated["apiBaseUrl"] = whole.removesuffix("/").removesuffix(_CHAT_PATH)
    provider = translated.pop(names.get("inference_provider", ""), None)
    if provider is not None and ":" not in model:
        model = f"{model}:{provider}"
    limit = translated.pop(names.get("max_new_tokens", ""), None)
    if limit is not None and "max_tokens" not in names:
        translated["max_tokens"] = limit
    for name in _OF_TASKS & names.keys():
        del translated[names[name]]
    found = ChatAdapter.read_entry(service, model, translated, context.environ)
    return _renamed(found) if whole is not None and isinstance(found, list) else found


def _renamed(problems: list[Problem]) -> list[Problem]:
    """Return problems of the base URL as those of the key that set it."""
    return [
        attrs.evolve(problem, path=".config.apiEndpoint")
        if problem.path == ".config.apiBaseUrl"
        else problem
        for problem in problems
    ]


def _first(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first object of a list, or the body itself."""
    return next(iter(objects(data, ROWS)), {}) if ROWS in data else data


def _single(rows: Any) -> list[Any]:
    """Return a list; one with a single list in it becomes that one."""
    if not isinstance(rows, list):
        return []
    return rows[0] if len(rows) == 1 and isinstance(rows[0], list) else rows
