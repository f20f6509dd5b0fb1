# Separate from `providers.vendor_hosts`: one module for each vendor, imported when a suite names it.
"""Replicate: predictions of any model, waited for and polled until they end."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from trioeval.errors import Problem, ProviderError, ProviderErrorKind
from trioeval.providers.base import Reply
from trioeval.providers.config import (
    EntryContext,
    Key,
    ProviderSettings,
    is_json_object,
    is_number,
    is_text,
    is_texts,
    show,
    to_snake,
)
from trioeval.providers.http.adapter import Adapter
from trioeval.providers.http.endpoint import Service
from trioeval.providers.http.polling import Polling, PollingProvider
from trioeval.providers.http.replies import count, text
from trioeval.providers.http.wire import HttpClient, HttpReply
from trioeval.providers.messages import to_messages
from trioeval.providers.other_keys import OtherKeys
from trioeval.usage import Usage

NUMBERS = (
    *("max_length", "max_new_tokens", "temperature", "top_p", "top_k", "repetition_penalty"),
    "seed",
)
"""Inputs that the environment may set, as `REPLICATE_TEMPERATURE`."""

TEXTS = ("stop_sequences", "system_prompt")
"""Inputs that are text, likewise."""

REPLICATE = Service(
    family="replicate",
    default_url="https://api.replicate.com/v1",
    key_variables=("REPLICATE_API_TOKEN", "REPLICATE_API_KEY"),
    limits_per_model=False,
    variables={name: f"REPLICATE_{name.upper()}" for name in NUMBERS},
)

PREDICTIONS = Polling("prediction", "predictions", frozenset({"starting", "processing"}))

WAIT = 60
"""Seconds for which the service keeps the first request open, so that most predictions need no poll."""

INTERRUPTED = re.compile(r"interrupted|please retry|try again", re.IGNORECASE)
"""Words of a failed prediction that may succeed if it is repeated."""


def _is_affixes(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and value.keys() <= {"prefix", "suffix"}
        and all(isinstance(part, str) for part in value.values())
    )


def _is_stop(value: Any) -> bool:
    return is_text(value) or is_texts(value)


class ReplicateAdapter(Adapter):
    """Predictions of one model or version."""

    call_keys = (
        *(Key(name, "a number", is_number) for name in NUMBERS),
        Key("stop_sequences", "text or a list of texts", _is_stop),
        Key("system_prompt", "text", is_text),
        Key("passthrough", "an object", is_json_object),
    )
    entry_keys = (Key("prompt", "an object of texts: prefix, suffix", _is_affixes),)
    other_keys = OtherKeys(not_here=frozenset({"metrics"}))
    default_keys = tuple(Key(name, "a number", is_number) for name in NUMBERS)
    show_thinking = False
    holder = "the output"

    def connect(self, client: HttpClient) -> PollingProvider:
        """Return a provider that polls predictions."""
        return PollingProvider(self, client, PREDICTIONS)

    @property
    def url(self) -> str:
        """The URL for predictions of the model, or of a version."""
        model, _, version = self.endpoint.model.partition(":")
        return self.endpoint.url("predictions" if version else f"models/{model}/predictions")

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """The headers with the request to wait."""
        return {"prefer": f"wait={WAIT}", **self.endpoint.headers}

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the version, if the id has one."""
        version = self.endpoint.model.partition(":")[2]
        return {"version": version} if version else {}

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the input: the parameters, the system prompt and the user's prompt."""
        affixes = self.given.get("prompt") or {}
        whole = f"{affixes.get('prefix', '')}{prompt}{affixes.get('suffix', '')}"
        system, user = _split(whole)
        values = {**self.defaults, **self.given}
        names = (key.name for key in self.call_keys[:-1])
        known = {name: values[name] for name in names if values.get(name) is not None}
        above = {} if system is None else {"system_prompt": system}
        return {
            "input": {**(self.given.get("passthrough") or {}), **known, **above, "prompt": user}
        }

    def find_failure(self, reply: HttpReply, data: Mapping[str, Any]) -> HttpReply | None:
        """Return the reply, unless it is a prediction, which has its own error."""
        return None if text(data, "status") else super().find_failure(reply, data)

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the output of a prediction; the parts of a list are joined."""
        status, output = text(data, "status"), data.get("output")
        if status == "failed":
            words = text(data, "error") or "no reason"
            kind: ProviderErrorKind = "server" if INTERRUPTED.search(words) else "unexpected"
            raise self.failure(kind, f"the prediction failed: {words}", reply, advice="")
        if status is None:
            raise self.failure("malformed_reply", "the reply is not a prediction", reply)
        if status != "succeeded":
            raise self.failure("unexpected", f"the prediction ended as {status}", reply, advice="")
        if isinstance(output, list) and all(isinstance(part, str) for part in output):
            output = "".join(output)
        if output is not None and not isinstance(output, str):
            fault = f"the output is not text: {show(output)}"
            raise self.failure("unexpected", fault, reply, advice="")
        return Reply(output=output, finish_reason="stop", usage=self.usage(data))

    def is_empty(self, data: Mapping[str, Any]) -> bool:
        """Return whether the output is missing; an empty text or list is not."""
        return data.get("output") is None

    def usage(self, data: Mapping[str, Any]) -> Usage:
        """Return the token counts, which language models report."""
        metrics = data.get("metrics")
        prompt, completion = (
            count(metrics, "input_token_count"),
            count(metrics, "output_token_count"),
        )
        total = None if prompt is None or completion is None else prompt + completion
        return Usage(prompt=prompt, completion=completion, total=total)


_MODEL = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")


def read(
    prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> ProviderSettings | list[Problem]:
    """Read an entry `replicate:<owner>/<model>` or with `:<version>`; see `Reader`."""
    if _MODEL.fullmatch(rest) is None:
        hint = f"write {prefix}:<owner>/<model> or {prefix}:<owner>/<model>:<version>"
        return [Problem(".id", f'"{prefix}:{rest}" is not a valid Replicate id', hint)]
    given = {to_snake(str(name)) for name in config}
    texts = {name: context.environ.get(f"REPLICATE_{name.upper()}", "").strip() for name in TEXTS}
    defaults = {name: written for name, written in texts.items() if written and name not in given}
    return ReplicateAdapter.read_entry(REPLICATE, rest, {**defaults, **config}, context.environ)


def _split(prompt: str) -> tuple[Any, Any]:
    """Return the first system message, and the first user message or the prompt itself."""
    try:
        messages = to_messages(prompt)
    except ProviderError:  # a text that only begins like messages is sent as it is
        return None, prompt
    system = next((one.get("content") for one in messages if one["role"] == "system"), None)
    user = next((one.get("content") for one in messages if one["role"] == "user"), None)
    return system or None, user or prompt
