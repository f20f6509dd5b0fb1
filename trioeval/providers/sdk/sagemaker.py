"""`sagemaker:<type>:<endpoint>`: a model behind an endpoint of Amazon SageMaker, through boto3.

The type determines the body; the output is found in any of the forms in which such models reply. Account and
region are those of Bedrock.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

import attrs

from trioeval.errors import Problem
from trioeval.providers.base import Reply
from trioeval.providers.config import (
    EntryContext,
    Key,
    ProviderResources,
    ProviderSettings,
    is_count,
    is_number,
    is_text,
    is_texts,
    is_visible_text,
    show,
)
from trioeval.providers.generic.reply import (
    NOTHING,
    MemberPath,
    TransformError,
    TransformInput,
    read_transform,
)
from trioeval.providers.http.adapter import Adapter, HttpProvider
from trioeval.providers.http.endpoint import Service
from trioeval.providers.http.failures import find_refusal
from trioeval.providers.http.replies import NOT_JSON, field, objects, read_json, read_number
from trioeval.providers.http.wire import HttpReply, HttpRequest
from trioeval.providers.other_keys import OtherKeys, read_open_config
from trioeval.providers.sdk.bedrock import (
    ACCESS,
    SAGEMAKER_HOSTS,
    SHARED,
    URL_KEYS,
    BedrockSettings,
    at_endpoint,
    aws_endpoint,
    explain,
    own_values,
    read_access,
)
from trioeval.providers.sdk.entries import check_extra
from trioeval.providers.vendors.chat import read_usage
from trioeval.usage import Usage

TYPES = ("openai", "llama", "huggingface", "jumpstart", "custom")
"""Types of models, which determine the body."""

REGION = "us-east-1"
"""The region if neither config nor environment names one."""

WHOLE = "reply"
"""The member with the body of a reply that is not an object."""

NUMBERS = (
    Key("maxTokens", "a whole number of at least 1", is_count),
    Key("temperature", "a number", is_number),
    Key("topP", "a number", is_number),
)
"""Parameters whose defaults the environment may set."""

VARIABLES: Mapping[str, str] = {
    "maxTokens": "AWS_SAGEMAKER_MAX_TOKENS",
    "temperature": "AWS_SAGEMAKER_TEMPERATURE",
    "topP": "AWS_SAGEMAKER_TOP_P",
}
DEFAULTS: Mapping[str, float] = {"max_tokens": 1024, "temperature": 0.7, "top_p": 1}


def _is_format(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and value.keys() <= {"type", "path"}
        and all(map(is_text, value.values()))
    )


class SageMakerAdapter(Adapter):
    """InvokeEndpoint, for models that return text."""

    call_keys = (*NUMBERS, Key("stopSequences", "a list of texts", is_texts))
    entry_keys = (
        Key("modelType", f"one of {', '.join(TYPES)}", lambda value: value in TYPES),
        Key("endpoint", "the name of an endpoint", is_visible_text),
        Key("contentType", "printable ASCII text", is_visible_text),
        Key("acceptType", "printable ASCII text", is_visible_text),
        Key("responseFormat", "an object of texts: type, path", _is_format),
    )
    default_keys = NUMBERS
    show_thinking = False
    other_keys = OtherKeys(sends=False)
    holder = "the reply"

    @property
    def url(self) -> str:
        """The URL of the endpoint."""
        return self.endpoint.url(f"endpoints/{self.endpoint.model}/invocations")

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """The types of body and reply; boto3 adds the signature."""
        return {
            "content-type": self.given.get("content_type") or "application/json",
            "accept": self.given.get("accept_type") or "application/json",
        }

    @property
    def model_type(self) -> str:
        """The type of the model."""
        return str(self.given.get("model_type") or "custom")

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the parameters in the form of the type."""
        by_name = {"maxTokens": "max_tokens", "topP": "top_p"}
        variables = {by_name.get(name, name): value for name, value in self.defaults.items()}
        given = {name: self.given[name] for name in DEFAULTS if self.given.get(name) is not None}
        values = {**DEFAULTS, **variables, **given}
        stop = self.given.get("stop_sequences")
        stops = {"stop": list(stop)} if stop else {}
        sampling = {"temperature": values["temperature"], "top_p": values["top_p"]}
        inside = {"max_new_tokens": values["max_tokens"], **sampling}
        match self.model_type:
            case "openai":
                return {"max_tokens": values["max_tokens"], **sampling, **stops}
            case "llama":
                return {"parameters": {**inside, **stops}}
            case "custom":
                return {}
            case kind:
                more = {"return_full_text": False} if kind == "huggingface" else {}
                samples = {"do_sample": values["temperature"] > 0}
                return {"parameters": {**inside, **samples, **more}}

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the prompt, or the messages in it, in the form of the type."""
        data = read_json(prompt)
        messages = data if isinstance(data, list) else None
        match self.model_type:
            case "openai":
                return {"prompt": prompt} if messages is None else {"messages": messages}
            case "llama":
                return {"inputs": prompt if messages is None else messages}
            case "custom":
                return data if isinstance(data, dict) else {"prompt": prompt}
            case _:
                return {"inputs": prompt}

    def ask(self, prompt: str) -> HttpRequest:
        """Return the request; JSON of any kind is the whole body of a custom model."""
        data = read_json(prompt)
        if self.model_type != "custom" or data is NOT_JSON or isinstance(data, dict):
            return super().ask(prompt)
        return HttpRequest(self.url, self.headers, json.dumps(data).encode())

    def load(self, reply: HttpReply) -> dict[str, Any]:
        """Return the body as an object; a body of another kind is its only member."""
        data = read_json(reply.body)
        if data is NOT_JSON:
            data = reply.body.decode("utf-8", "replace")
        return data if isinstance(data, dict) else {WHOLE: data}

    def fail(self, reply: HttpReply, data: Mapping[str, Any]) -> Reply:
        """Return or raise as in `Adapter.fail`, with the codes of AWS for kinds of failures."""
        if data or find_refusal(reply) is not None:
            return super().fail(reply, data)
        raise explain(reply, self.endpoint.secrets, self.endpoint.model)

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:  # noqa: ARG002 - any body is a reply
        """Return the value at the path of `responseFormat`, else the text where such models have it."""
        whole = data.get(WHOLE, data)
        return Reply(output=self._found(whole), usage=self.usage(data))

    def _found(self, whole: Any) -> Any:
        if isinstance(whole, str):
            return whole
        written = (self.given.get("response_format") or {}).get("path")
        path = read_transform(written) if written else None
        if isinstance(path, MemberPath):
            try:
                return path.apply(TransformInput(json=whole, text="", context={}))
            except TransformError:
                return whole
        return find_text(self.model_type, whole)

    def usage(self, data: Mapping[str, Any]) -> Usage:
        """Return the token counts, which models with OpenAI's form report."""
        return read_usage(data)

    def is_empty(self, data: Mapping[str, Any]) -> bool:
        """Return whether the body is null."""
        return data.get(WHOLE, NOTHING) is None

    def _completed(self, answer: Reply, reply: HttpReply, data: dict[str, Any]) -> Reply:
        return attrs.evolve(super()._completed(answer, reply, data), raw=data.get(WHOLE, data))


def find_text(model_type: str, whole: Any) -> Any:
    """Return the text of a model's reply; the reply itself if it has none.

    Example:
        >>> find_text("openai", {"choices": [{"message": {"content": "4"}}]})
        '4'
        >>> find_text("huggingface", [{"generated_text": "4"}]), find_text("llama", {"x": 1})
        ('4', {'x': 1})
    """
    if model_type == "huggingface" and isinstance(whole, list):
        first = whole[0] if whole else whole
        return field(first, "generated_text") or first
    choice = next(iter(objects(whole, "choices")), None)
    chosen = field(choice, "message", "content") or field(choice, "text")
    names = {
        "openai": (chosen, field(whole, "generation")),
        "llama": (field(whole, "generation"), chosen),
        "custom": (
            *(field(whole, name) for name in ("output", "generation", "response", "text")),
            chosen,
        ),
    }
    found = (field(whole, "generated_text"), *names.get(model_type, ()))
    return next((one for one in found if one), whole)


class SageMakerEmbeddingAdapter(SageMakerAdapter):
    """InvokeEndpoint, for models that return vectors."""

    call_keys = ()  # type: ignore[assignment] # no parameters
    default_keys = ()  # type: ignore[assignment]
    returns = "embedding"

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the name of the model, which the form of OpenAI needs."""
        return {"model": "embedding"} if self.model_type == "openai" else {}

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the text under the name of the type; a custom model may read any of several names."""
        names = {"openai": ("input",), "huggingface": ("inputs",)}
        return dict.fromkeys(names.get(self.model_type, ("input", "text", "inputs")), prompt)

    def ask(self, prompt: str) -> HttpRequest:
        """Return the request."""
        return Adapter.ask(self, prompt)

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the vector as a list of numbers."""
        whole = data.get(WHOLE, data)
        vector = self._found(whole)
        if not isinstance(vector, list):
            first = next(iter(objects(whole, "data")), None)
            found = (
                field(whole, "embedding"),
                field(whole, "embeddings"),
                field(first, "embedding"),
            )
            vector = next((one for one in found if one), None)
        while isinstance(vector, list) and vector and isinstance(vector[0], list):
            vector = vector[0]
        numbers = [read_number(one) for one in vector] if isinstance(vector, list) else []
        if not numbers or None in numbers:
            raise self.failure("malformed_reply", "the reply has no vector", reply)
        return Reply(output=numbers, usage=self.usage(data))


class SageMakerSettings(BedrockSettings):
    """The settings of a valid entry; boto3 is not imported yet."""

    @asynccontextmanager
    async def open(self, shared: ProviderResources) -> AsyncGenerator[HttpProvider]:  # noqa: ARG002 - boto3 has its own connections
        """Open the adapter with boto3 as its client.

        Raises:
            ProviderError: `auth`, if the profile does not exist.
        """
        from trioeval.providers.sdk.boto import INVOKE, open_boto

        async with open_boto(self.access, self.adapter.endpoint, INVOKE) as client:
            yield HttpProvider(self.adapter, client)


def read(
    prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> ProviderSettings | list[Problem]:
    """Read an entry: `sagemaker:<type>:<endpoint>`, or with `modelType` in the config; see `Reader`."""
    environ = context.environ
    kind, colon, name = rest.partition(":")
    embeds = kind in ("embedding", "embeddings") and bool(colon)
    adapter = SageMakerEmbeddingAdapter if embeds else SageMakerAdapter
    problems = check_extra(prefix, "boto3", "bedrock")
    keys = (*adapter.call_keys, *adapter.entry_keys, *ACCESS, *SHARED)
    found = read_open_config(config, keys, adapter.other_keys)
    faults = found.problems
    given = {name: value for name, value in found.values.items() if value is not None}
    model = str(given.get("endpoint") or (name if colon else rest))
    if colon and not embeds:
        if kind in TYPES:
            given["model_type"] = "jumpstart" if "jumpstart" in name else kind
        else:
            message = f'"{kind}" is not a type of model'
            faults.append(Problem(".id", message, f"use {', '.join(TYPES)} or embedding"))
    elif not embeds and "model_type" not in given:
        hint = f"write {prefix}:<type>:{rest or '<endpoint>'}, or set modelType: {', '.join(TYPES)}"
        faults.append(Problem(".id", f'"{prefix}:{rest}" has no type of model', hint))
    if not model.strip():
        hint = f"write {prefix}:<type>:<endpoint>"
        faults.append(Problem(".id", f'"{prefix}:{rest}" has no endpoint', hint))
    path = given.get("response_format", {}).get("path")
    if path is not None and not isinstance(read_transform(path), MemberPath):
        message = f"must be a path of members such as json.choices[0].text, got {show(path)}"
        faults.append(Problem(".config.responseFormat.path", message))
    if not (environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")):
        given.setdefault("region", REGION)
    access, missing = read_access(given, environ)
    service = Service(
        family="sagemaker",
        default_url=f"https://runtime.sagemaker.{access.region}.amazonaws.com",
        key_variables=(),
        hosts=SAGEMAKER_HOSTS,
        url_variables=("AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME", "AWS_ENDPOINT_URL"),
        needs_key=False,
        url_keys=URL_KEYS,
        variables=VARIABLES,
    )
    endpoint, wrong = aws_endpoint(service, model, access, given, environ)
    defaults, odd = adapter.read_defaults(service, environ)
    problems += [*faults, *missing, *wrong, *odd]
    if endpoint is None or problems:
        return problems
    ready = adapter(endpoint=endpoint, layers=(own_values(given),), defaults=defaults)
    return SageMakerSettings(ready, at_endpoint(access, endpoint), warnings=found.warnings)
