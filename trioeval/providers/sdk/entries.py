# Apart from `providers.sdk.bedrock`: that one is sent by no client of ours.
"""Entries whose requests go out through an SDK: read and asked as without it, sent by it.

The SDK stands where the HTTP client stands. The same adapter builds the body and reads the reply, so that
`openai-sdk:gpt-4.1` and `openai:gpt-4.1` are two ways to ask one thing, with one lane; what the SDK adds is
its own way of authenticating, its headers, and whatever its maker puts there.
"""

import importlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any, TypeAlias

import attrs

from trioeval.errors import Problem
from trioeval.providers.config import Reader, Settings, Shared, Surroundings
from trioeval.providers.http.adapter import AdapterSettings, HttpProvider
from trioeval.providers.http.endpoint import Endpoint
from trioeval.providers.http.wire import HttpClient

Wrap: TypeAlias = Callable[[Endpoint, HttpClient], HttpClient]
"""Puts an SDK in front of a client. Imports the SDK, which takes up to a second."""


def _wrap_openai(endpoint: Endpoint, client: HttpClient) -> HttpClient:
    import openai  # noqa: PLC0415

    from trioeval.providers.sdk.transport import PostingClient, open_client, own_key  # noqa: PLC0415

    sdk = openai.AsyncOpenAI(
        api_key=own_key(endpoint),
        base_url=endpoint.base_url,
        max_retries=0,
        timeout=None,
        http_client=open_client(client),
    )
    # What the constructor is not given it takes from variables that the lane does not know of.
    sdk.organization, sdk.project = endpoint.organization or None, endpoint.project or None
    return PostingClient("openai", endpoint, sdk)


def _wrap_anthropic(endpoint: Endpoint, client: HttpClient) -> HttpClient:
    import anthropic  # noqa: PLC0415

    from trioeval.providers.sdk.transport import PostingClient, open_client, own_key  # noqa: PLC0415

    sdk = anthropic.AsyncAnthropic(
        api_key=own_key(endpoint),
        base_url=endpoint.base_url,
        max_retries=0,
        timeout=None,
        http_client=open_client(client),
    )
    return PostingClient("anthropic", endpoint, sdk)


def _wrap_google(endpoint: Endpoint, client: HttpClient) -> HttpClient:
    from trioeval.providers.sdk.google import wrap  # noqa: PLC0415

    return wrap(endpoint, client)


@attrs.frozen(kw_only=True)
class Sdk:
    """One vendor's SDK."""

    plain: str
    """The prefix of the ids that mean the same without it."""
    vendor: str
    """The module that reads those."""
    package: str
    """What is imported; it comes with the extra `name`."""
    name: str
    """Of the extra."""
    wrap: Wrap
    refused: Mapping[str, str] = attrs.field(factory=dict)
    """Beginnings of what follows the prefix that it cannot be asked for, and what they are."""
    can_stream: bool = True


SDKS: Mapping[str, Sdk] = {
    "openai-sdk": Sdk(
        plain="openai", vendor="openai", package="openai", name="openai", wrap=_wrap_openai
    ),
    "anthropic-sdk": Sdk(
        plain="anthropic",
        vendor="anthropic",
        package="anthropic",
        name="anthropic",
        wrap=_wrap_anthropic,
    ),
    "google-sdk": Sdk(
        plain="google",
        vendor="gemini",
        package="google.genai",
        name="google",
        wrap=_wrap_google,
        refused={"embedding:": "embeddings"},
        can_stream=False,
    ),
}
"""By the prefix of their ids."""


@attrs.frozen
class SdkSettings(AdapterSettings):
    """An entry that is right without the SDK, and so with it.

    Its lane is that of the entry without the SDK: the service counts both together.
    """

    sdk: Sdk

    @asynccontextmanager
    async def open(self, shared: Shared) -> AsyncGenerator[HttpProvider]:
        """The adapter with the SDK for its client."""
        client = self.sdk.wrap(self.adapter.endpoint, await shared.http())
        yield HttpProvider(self.adapter, client)


def read(
    prefix: str, rest: str, config: Mapping[str, Any], around: Surroundings
) -> Settings | list[Problem]:
    """Read an entry: what follows the prefix, and its config, are those of the vendor; see `Reader`.

    A missing extra is told together with everything else that is wrong.
    """
    sdk = SDKS[prefix]
    problems = check_extra(prefix, sdk.package, sdk.name)
    if not rest.strip():
        hint = f"write {prefix}:<model>"
        return [*problems, Problem(".id", f'"{prefix}:" names no model', hint)]
    for beginning, what in sdk.refused.items():
        if rest.startswith(beginning):
            instead = f"use {sdk.plain}:{rest}"
            problems.append(Problem(".id", f"{what} cannot be asked for through the SDK", instead))
    reader: Reader = importlib.import_module(f"trioeval.providers.vendors.{sdk.vendor}").read
    plain = reader(sdk.plain, rest, config, around)
    if isinstance(plain, list):
        return [*problems, *plain]
    instead = f"use {sdk.plain}:{rest}"
    if type(plain) is not AdapterSettings:
        message = "this takes more than one request, and an SDK is asked for one"
        problems.append(Problem(".id", message, instead))
    elif plain.adapter.streams and not sdk.can_stream:
        message = "the first token is not timed through this SDK"
        problems.append(Problem(".config.metrics", message, instead))
    elif not problems:
        return SdkSettings(plain.adapter, sdk)
    return problems


def check_extra(prefix: str, package: str, extra: str) -> list[Problem]:
    """A problem, if a package that comes with an extra is not installed. Does not import it."""
    try:
        is_there = find_spec(package) is not None
    except ModuleNotFoundError:  # a parent is missing
        is_there = False
    if is_there:
        return []
    message = f'"{prefix}:" needs the extra "{extra}"'
    return [Problem(".id", message, f"pip install 'trioeval[{extra}]'")]
