"""`bedrock:<model>`: any model behind Amazon Bedrock's Converse API, through boto3.

Credentials and region are found as boto3 finds them: in the config, the environment, or its usual files.
"""

import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs

from trioeval.errors import Problem, ProviderError, ProviderErrorKind
from trioeval.providers.base import Guardrails, Reply, ToolCall
from trioeval.providers.config import (
    THIS_PROVIDER,
    EntryContext,
    Key,
    ProviderResources,
    ProviderSettings,
    is_flag,
    is_text,
    to_snake,
)
from trioeval.providers.http.adapter import Adapter, AdapterSettings, HttpProvider
from trioeval.providers.http.endpoint import ENDPOINT_KEYS, Endpoint, Service, read_endpoint
from trioeval.providers.http.failures import classify, find_refusal
from trioeval.providers.http.replies import FILTERED, count, field, joined, objects, read_call, text
from trioeval.providers.http.wire import HttpReply
from trioeval.providers.messages import read_data_uri, read_image_url, to_messages
from trioeval.providers.other_keys import read_open_config, with_secrets
from trioeval.providers.sdk.bedrock_request import CALL_KEYS, RULES, find_conflicts, fixed_body
from trioeval.providers.sdk.entries import check_extra
from trioeval.providers.secrets import longest_first
from trioeval.usage import Usage

# Amazon Bedrock's Converse: a prompt becomes the arguments of a call, a reply becomes an output.
#
# Both are the JSON of the HTTP API, so they are built and read like those of all other services.


KIND_BY_CODE: Mapping[str, ProviderErrorKind] = {
    "modelerrorexception": "server",
    "servicequotaexceededexception": "quota_exhausted",
    "unrecognizedclientexception": "auth",
    "invalidsignatureexception": "auth",
    "expiredtokenexception": "auth",
    "expiredtoken": "auth",
}
"""Error names that are more specific than the status, in lower case."""

TOO_LONG = re.compile(r"input is too long|too many (input )?tokens|context window", re.IGNORECASE)
"""Messages of a `ValidationException` about a prompt that is too long."""

FINISH_BY_STOP: Mapping[str, str] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
}


class ConverseAdapter(Adapter):
    """The Converse API, for any model."""

    call_keys = CALL_KEYS
    entry_keys = (Key("showThinking", "true or false", is_flag),)
    limit_key = "maxTokens"
    other_keys = RULES

    @classmethod
    def find_conflicts(
        cls,
        service: Service,  # noqa: ARG003 - the same for every service
        layers: Sequence[Mapping[str, Any]],
    ) -> list[Problem]:
        """See `bedrock_request.find_conflicts`."""
        return find_conflicts(layers[-1])

    @property
    def url(self) -> str:
        """The URL of the model."""
        return self.endpoint.url(f"model/{self.endpoint.model}/converse")

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the arguments of a call without the messages."""
        return fixed_body(self.endpoint.model, self.given)

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the messages, and the system blocks if there are any."""
        system, messages = _split(to_messages(prompt))
        above = {"system": system} if system else {}
        return {**above, "messages": messages}

    def fail(self, reply: HttpReply, data: Mapping[str, Any]) -> Reply:
        """Return or raise as in `Adapter.fail`, with Bedrock's own codes for kinds of failures."""
        if data or find_refusal(reply) is not None:
            return super().fail(reply, data)
        raise explain(reply, self.endpoint.secrets, self.endpoint.model)

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the reply in the blocks of the message."""
        if not isinstance(field(data, "output", "message", "content"), list):
            raise self.failure("malformed_reply", "the reply is not a Converse reply", reply)
        stop = text(data, "stopReason")
        finish_reason = None if stop is None else FINISH_BY_STOP.get(stop, stop.lower())
        is_filtered = finish_reason == "content_filter"
        reason = text(data, "trace", "guardrail", "actionReason") or stop
        blocks = objects(data, "output", "message", "content")
        output, words = self._output(blocks), joined((text(one, "text") for one in blocks), "\n\n")
        if is_filtered and not output:
            output = words = FILTERED
        thoughts = (text(one, "reasoningContent", "reasoningText", "text") for one in blocks)
        return Reply(
            output=output,
            text=words or "",
            tool_calls=tuple(_calls(blocks)),
            reasoning=joined(thoughts, "\n\n"),
            refusal=(reason or FILTERED) if is_filtered else None,
            usage=_usage(data),
            finish_reason=finish_reason,
            guardrails=Guardrails(flagged=True, reason=reason) if is_filtered else None,
        )

    def usage(self, data: Mapping[str, Any]) -> Usage:
        """Return the token counts."""
        return _usage(data)

    @property
    def requested_tier(self) -> str | None:
        """The type of the service tier."""
        return text(self.body, "serviceTier", "type")

    def served_tier(self, data: Mapping[str, Any]) -> str | None:
        """Return the type of the service tier."""
        return text(data, "serviceTier", "type")

    def is_empty(self, data: Mapping[str, Any]) -> bool:
        """Return whether the message has no block."""
        return not field(data, "output", "message", "content")

    def _output(self, blocks: list[dict[str, Any]]) -> str:
        """Return the texts and, in order with them, tools and thoughts."""
        parts = []
        for block in blocks:
            match block:
                case {"text": str(part_text)}:
                    parts.append(part_text)
                case {"reasoningContent": thought}:
                    thinking = text(thought, "reasoningText", "text")
                    if self.show_thinking and thinking is not None:
                        parts.append(f"Thinking: {thinking}")
                case _:
                    parts.append(json.dumps(block, ensure_ascii=False))
        return "\n\n".join(parts)


URL_KEYS = "region, endpointUrl"
"""The config keys that decide the URL, for messages."""


def explain(reply: HttpReply, secrets: tuple[str, ...], model: str = "") -> ProviderError:
    """Return the error for a failed reply: as for every service, and by Bedrock's own codes."""
    error = classify(
        reply,
        secrets=secrets,
        model=model,
        key_source="the AWS credentials and their permissions",
        url_source=URL_KEYS,
    )
    code = reply.headers.get("x-amzn-errortype", "").partition(":")[0].lower()
    kind = KIND_BY_CODE.get(code)
    if error.kind == "bad_request" and TOO_LONG.search(error.message):
        kind = "context_window"
    return error if kind is None else error.restated(error.message, kind=kind)


def _split(messages: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the blocks of system messages, and the other messages with their content as blocks."""
    system: list[Any] = []
    others: list[Any] = []
    for message in messages:
        blocks = _blocks(message.get("content"))
        if message["role"] in ("system", "developer"):
            system += blocks
        else:
            others.append({"role": message["role"], "content": blocks})
    return system, others


def _blocks(content: Any) -> list[Any]:
    """Return text as one block, and parts of chat messages as blocks; blocks of Converse are unchanged."""
    if not isinstance(content, list):
        return [{"text": content if isinstance(content, str) else json.dumps(content)}]
    return [_block(part) for part in content]


def _block(part: Any) -> Any:
    if isinstance(part, dict) and part.get("type") == "text":
        return {"text": part.get("text")}
    url = read_image_url(part)
    if url is None:
        return part
    image = read_data_uri(url)
    if image is None:
        message = "an image must be a base64 data: URI; Converse does not fetch URLs"
        raise ProviderError("bad_request", message)
    return {
        "image": {"format": image.media_type.partition("/")[2], "source": {"bytes": image.data}}
    }


def _calls(blocks: list[dict[str, Any]]) -> Iterator[ToolCall]:
    for block in blocks:
        use = block.get("toolUse")
        if (name := text(use, "name")) is not None:
            yield read_call(name, field(use, "input"), text(use, "toolUseId"))


def _usage(data: Any) -> Usage:
    """Return the token counts; Converse counts the prompt without its cached tokens."""
    plain = count(data, "usage", "inputTokens")
    cached = count(data, "usage", "cacheReadInputTokens")
    written = count(data, "usage", "cacheWriteInputTokens")
    return Usage(
        prompt=None if plain is None else plain + (cached or 0) + (written or 0),
        completion=count(data, "usage", "outputTokens"),
        total=count(data, "usage", "totalTokens"),
        cached=cached,
        cache_creation=written,
    )


REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")


def is_region(name: Any) -> bool:
    """Return whether a name has the form of a region."""
    return isinstance(name, str) and REGION.fullmatch(name) is not None


ACCESS = (
    Key("region", "the name of a region, such as us-east-1", is_region),
    Key("endpointUrl", "text", is_text, secret=True),
    Key("profile", "text", is_text),
    Key("accessKeyId", "text", is_text, secret=True),
    Key("secretAccessKey", "text", is_text, secret=True),
    Key("sessionToken", "text", is_text, secret=True),
)
"""Keys of credentials and region."""

SHARED = tuple(
    key for key in ENDPOINT_KEYS if key.name in ("timeoutMs", "maxResponseBytes", "price")
)
"""Keys of every service over HTTP that apply here too."""

KEYS = (*ConverseAdapter.call_keys, *ACCESS, *SHARED, *ConverseAdapter.entry_keys)


SECRET_VARIABLE = "AWS_SECRET_ACCESS_KEY"  # noqa: S105 - a name
"""The environment variable of the signing key if the config has none; boto3 also finds it in files."""

PROFILE_VARIABLE = "AWS_PROFILE"
"""The environment variable of the profile in the user's files if the config has none."""

HOSTS = (
    "bedrock-runtime.*.amazonaws.com",
    "bedrock-runtime.*.amazonaws.com.cn",
    "bedrock-runtime-fips.*.amazonaws.com",
    "bedrock-runtime.*.api.aws",
    "*.bedrock-runtime.*.vpce.amazonaws.com",
)
"""The vendor's own hosts; others below its domain are machines of its customers."""


SAGEMAKER_HOSTS = (
    "runtime.sagemaker.*.amazonaws.com",
    "runtime.sagemaker.*.amazonaws.com.cn",
    "runtime-fips.sagemaker.*.amazonaws.com",
    "*.runtime.sagemaker.*.vpce.amazonaws.com",
)
"""The same for SageMaker, whose requests have the same keys."""


@attrs.frozen(kw_only=True)
class AwsAccess:
    """The arguments of a boto3 session; for a missing one boto3 searches its usual places."""

    region: str
    url: str | None = None
    """None if it follows from the region."""
    profile: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = attrs.field(default=None, repr=False)
    session_token: str | None = attrs.field(default=None, repr=False)


@attrs.frozen
class BedrockSettings(AdapterSettings):
    """The settings of a valid entry; boto3 is not imported yet."""

    access: AwsAccess

    @property
    def secrets(self) -> tuple[str, ...]:
        """Credentials in the config and the environment; the id of a key is not secret."""
        return self.adapter.endpoint.other_secrets

    @property
    def credential_choices(self) -> Mapping[str, str]:
        """A profile is in the user's files, and may name programs that boto3 runs."""
        return {} if self.access.profile is None else {"profile": PROFILE_VARIABLE}

    @asynccontextmanager
    async def open(self, shared: ProviderResources) -> AsyncGenerator[HttpProvider]:  # noqa: ARG002 - boto3 has its own connections
        """Open the adapter with boto3 as its client.

        Raises:
            ProviderError: `auth`, if the profile does not exist.
        """
        from trioeval.providers.sdk.boto import CONVERSE, open_boto

        async with open_boto(self.access, self.adapter.endpoint, CONVERSE) as client:
            yield HttpProvider(self.adapter, client)


KINDS = frozenset({"converse", "completion"})
"""Kinds of requests that may be written before the model: Converse does both."""


def read(
    prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> ProviderSettings | list[Problem]:
    """Read an entry: the id or ARN of a model or of an inference profile; see `Reader`."""
    problems = check_extra(prefix, "boto3", "bedrock")
    kind, _, named = rest.partition(":")
    rest = named if kind in KINDS else rest
    if not rest.strip():
        problems.append(Problem(".id", f'"{prefix}:" has no model name', f"write {prefix}:<model>"))
    found = read_open_config(config, KEYS, RULES)
    given = {name: value for name, value in found.folded().items() if value is not None}
    access, missing = read_access(given, context.environ)
    service = Service(
        family="bedrock",
        default_url=f"https://bedrock-runtime.{access.region}.amazonaws.com",
        key_variables=(),
        hosts=HOSTS,
        url_variables=("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "AWS_ENDPOINT_URL"),
        needs_key=False,
        url_keys=URL_KEYS,
    )
    endpoint, wrong = aws_endpoint(service, rest, access, given, context.environ)
    problems += [*found.problems, *missing, *wrong, *find_conflicts(given)]
    if endpoint is None or problems:
        return problems
    own = own_values(given)
    endpoint = with_secrets(endpoint, own.get("passthrough"))
    adapter = ConverseAdapter(endpoint=endpoint, layers=(own,))
    return BedrockSettings(adapter, at_endpoint(access, endpoint), warnings=found.warnings)


def own_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values besides those of account and endpoint."""
    not_own = {to_snake(key.name) for key in (*ACCESS, *SHARED)}
    return {name: value for name, value in given.items() if name not in not_own}


def at_endpoint(access: AwsAccess, endpoint: Endpoint) -> AwsAccess:
    """Return the access with the URL of the endpoint, unless it follows from the region."""
    if endpoint.base_url == endpoint.service.default_url:
        return access
    return attrs.evolve(access, url=endpoint.base_url)


def read_access(
    given: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[AwsAccess, list[Problem]]:
    """Return the access of config and environment; a profile takes precedence over environment keys."""
    problems: list[Problem] = []
    region = given.get("region") or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    if not region:
        hint = (
            "set config.region, or AWS_REGION in the environment or in a file given with --env-file"
        )
        problems.append(Problem(".config.region", f"{THIS_PROVIDER} needs a region", hint))
    elif not is_region(region):
        message = f'the environment variable AWS_REGION is "{region}", which is not a valid region'
        problems.append(Problem(".config.region", message, "use a region such as us-east-1"))
    access_key, secret = given.get("access_key_id"), given.get("secret_access_key")
    if (access_key is None) != (secret is None):
        missing = "accessKeyId" if access_key is None else "secretAccessKey"
        message = "accessKeyId and secretAccessKey must both be set"
        problems.append(Problem(f".config.{missing}", message, f"set {missing} as well"))
    token, profile = given.get("session_token"), given.get("profile")
    if access_key is None and profile is None and environ.get("AWS_ACCESS_KEY_ID"):
        access_key = environ["AWS_ACCESS_KEY_ID"]
        secret = environ.get("AWS_SECRET_ACCESS_KEY")
        token = environ.get("AWS_SESSION_TOKEN")
    access = AwsAccess(
        region=region or "",
        profile=profile,
        access_key_id=access_key,
        secret_access_key=secret,
        session_token=token,
    )
    return access, problems


def aws_endpoint(
    service: Service,
    model: str,
    access: AwsAccess,
    given: Mapping[str, Any],
    environ: Mapping[str, str],
) -> tuple[Endpoint | None, list[Problem]]:
    """Return the endpoint of a service of AWS with the account that signs its requests, and the problems."""
    names = {to_snake(key.name) for key in SHARED}
    shared = {name: value for name, value in given.items() if name in names}
    url = given.get("endpoint_url")
    endpoint, problems = read_endpoint(service, model, {**shared, "api_base_url": url}, environ)
    path = ".config.endpointUrl"
    problems = [attrs.evolve(problem, path=path) for problem in problems]
    if endpoint is None:
        return None, problems
    signing = {access.secret_access_key or "", access.session_token or ""} - {""}
    endpoint = attrs.evolve(
        endpoint,
        credential=access.access_key_id or access.profile or "",
        other_secrets=longest_first(signing),
    )
    if (
        "access_key_id" not in given
    ):  # it comes from the environment, or from a file of this machine
        endpoint = attrs.evolve(endpoint, sent_variables=(SECRET_VARIABLE,))
    return endpoint, problems
