"""`bedrock:<model>`: any model behind Amazon Bedrock's Converse API, through boto3.

Who asks, and where, is found as boto3 finds it: in the config, the environment, or its usual places.
"""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs

from trioeval.errors import Problem
from trioeval.providers.adapter import HttpProvider
from trioeval.providers.config import Key, is_flag, is_text, read_config
from trioeval.providers.endpoint import ENDPOINT_KEYS, Endpoint, Service, read_endpoint
from trioeval.providers.sdk.converse import ARGUMENTS, INFERENCE, ConverseAdapter, named, present
from trioeval.providers.sdk.entries import check_extra
from trioeval.providers.settings import Settings, Shared, Surroundings

REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")


def is_region(name: Any) -> bool:
    """Whether it looks like the name of a region."""
    return isinstance(name, str) and REGION.fullmatch(name) is not None


ACCESS = (
    Key("region", "the name of a region, such as us-east-1", is_region),
    Key("endpointUrl", "text", is_text, secret=True),
    Key("profile", "text", is_text),
    Key("accessKeyId", "text", is_text, secret=True),
    Key("secretAccessKey", "text", is_text, secret=True),
    Key("sessionToken", "text", is_text, secret=True),
)
"""Keys that say who asks, and where."""

KEYS = (
    *INFERENCE,
    *ARGUMENTS,
    *ACCESS,
    *(key for key in ENDPOINT_KEYS if key.name in ("timeoutMs", "maxResponseBytes", "price")),
    Key("showThinking", "true or false", is_flag),
)


SECRET_VARIABLE = "AWS_SECRET_ACCESS_KEY"  # noqa: S105 - a name
"""What requests are signed with where the config says nothing; boto3 finds it in files too."""

PROFILE_VARIABLE = "AWS_PROFILE"
"""What chooses among the profiles of the user's files where the config says nothing."""

HOSTS = (
    "bedrock-runtime.*.amazonaws.com",
    "bedrock-runtime.*.amazonaws.com.cn",
    "bedrock-runtime-fips.*.amazonaws.com",
    "bedrock-runtime.*.api.aws",
    "*.bedrock-runtime.*.vpce.amazonaws.com",
)
"""The vendor's own; others below its name are machines of its customers."""


@attrs.frozen(kw_only=True)
class Access:
    """How boto3 finds who asks; where nothing is said, it looks in its usual places."""

    region: str
    url: str | None = None
    """None where the region says it."""
    profile: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = attrs.field(default=None, repr=False)
    session_token: str | None = attrs.field(default=None, repr=False)


@attrs.frozen
class BedrockSettings:
    """An entry that is known to be right; boto3 is not imported yet."""

    adapter: ConverseAdapter
    access: Access

    @property
    def lane_key(self) -> str:
        """Region or URL, digest of who asks, and model."""
        return self.adapter.endpoint.lane_key

    @property
    def secrets(self) -> tuple[str, ...]:
        """What the config and the environment say of who asks; the id of a key is no secret."""
        texts = (self.access.secret_access_key, self.access.session_token)
        return tuple(one for one in texts if one)

    @property
    def credential_choices(self) -> Mapping[str, str]:
        """A profile stands in files of the user's, and may name programs that boto3 runs."""
        return {} if self.access.profile is None else {"profile": PROFILE_VARIABLE}

    @asynccontextmanager
    async def open(self, shared: Shared) -> AsyncGenerator[HttpProvider]:  # noqa: ARG002 - boto3 has its own connections
        """The adapter, with boto3 for its client.

        Raises:
            ProviderError: `auth`, if the profile is not there.
        """
        from trioeval.providers.sdk.boto import open_boto  # noqa: PLC0415 - imports boto3

        async with open_boto(self.access, self.adapter.endpoint) as client:
            yield HttpProvider(self.adapter, client)


def read(
    prefix: str, rest: str, config: Mapping[str, Any], around: Surroundings
) -> Settings | list[Problem]:
    """Read an entry: the model's id or ARN, or that of an inference profile; see `Reader`."""
    problems = check_extra(prefix, "boto3", "bedrock")
    if not rest.strip():
        problems.append(Problem(".id", f'"{prefix}:" names no model', f"write {prefix}:<model>"))
    values, faults = read_config(config, KEYS)
    access, missing = _access(present(values), around.environ)
    endpoint, wrong = _endpoint(rest, access.region, present(values), around.environ)
    problems += [*faults, *missing, *wrong]
    if endpoint is None or problems:
        return problems
    if endpoint.base_url != endpoint.service.default_url:
        access = attrs.evolve(access, url=endpoint.base_url)
    account = access.access_key_id or access.profile or ""
    if values.get("access_key_id") is None:  # the environment, or a file of this machine
        endpoint = attrs.evolve(endpoint, sent_variables=(SECRET_VARIABLE,))
    shown = values.get("show_thinking")
    adapter = ConverseAdapter(
        attrs.evolve(endpoint, credential=account),
        inference=present(named(INFERENCE, values)),
        arguments=present(named(ARGUMENTS, values)),
        show_thinking=True if shown is None else shown,
    )
    return BedrockSettings(adapter, access)


def _access(given: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[Access, list[Problem]]:
    """Who asks: the config, else the environment; a profile wins over keys of the environment."""
    problems: list[Problem] = []
    region = given.get("region") or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    if not region:
        hint = "set region in the config, or AWS_REGION in the environment"
        problems.append(Problem(".config.region", "there is no region", hint))
    elif not is_region(region):
        message = f'the environment variable AWS_REGION holds "{region}", which is no region'
        problems.append(Problem(".config.region", message, "write one such as us-east-1"))
    access_key, secret = given.get("access_key_id"), given.get("secret_access_key")
    if (access_key is None) != (secret is None):
        missing = "accessKeyId" if access_key is None else "secretAccessKey"
        message = "an accessKeyId and a secretAccessKey go together"
        problems.append(Problem(f".config.{missing}", message, f"set {missing} as well"))
    token, profile = given.get("session_token"), given.get("profile")
    if access_key is None and profile is None and environ.get("AWS_ACCESS_KEY_ID"):
        access_key = environ["AWS_ACCESS_KEY_ID"]
        secret = environ.get("AWS_SECRET_ACCESS_KEY")
        token = environ.get("AWS_SESSION_TOKEN")
    access = Access(
        region=region or "",
        profile=profile,
        access_key_id=access_key,
        secret_access_key=secret,
        session_token=token,
    )
    return access, problems


def _endpoint(
    model: str, region: str, given: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[Endpoint | None, list[Problem]]:
    service = Service(
        family="bedrock",
        default_url=f"https://bedrock-runtime.{region}.amazonaws.com",
        key_variables=(),
        hosts=HOSTS,
        url_variables=("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "AWS_ENDPOINT_URL"),
        needs_key=False,
    )
    names = ("timeout_ms", "max_response_bytes", "price")
    shared = {name: given[name] for name in names if name in given}
    url = given.get("endpoint_url")
    endpoint, problems = read_endpoint(service, model, {**shared, "api_base_url": url}, environ)
    path = ".config.endpointUrl"
    return endpoint, [attrs.evolve(problem, path=path) for problem in problems]
