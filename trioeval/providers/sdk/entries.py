"""Entries whose requests are sent by an SDK, and built and read as without it.

The SDK replaces the HTTP client. The same adapter builds the body and reads the reply, so
`openai-sdk:gpt-4.1` and `openai:gpt-4.1` are two ways to call one model, with one lane; the SDK only adds its
own authentication and headers.
"""

import importlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any, TypeAlias

import attrs

from trioeval.errors import Problem
from trioeval.providers.config import EntryContext, ProviderResources, ProviderSettings, Reader
from trioeval.providers.http.adapter import AdapterSettings, HttpProvider
from trioeval.providers.http.endpoint import Endpoint
from trioeval.providers.http.wire import HttpClient

Wrap: TypeAlias = Callable[[Endpoint, HttpClient], HttpClient]
"""Wraps a client in an SDK. Imports the SDK, which takes up to a second."""


def _wrap_openai(endpoint: Endpoint, client: HttpClient) -> HttpClient:
    import openai

    from trioeval.providers.sdk.transport import PostingClient, open_client, own_key

    sdk = openai.AsyncOpenAI(
        api_key=own_key(endpoint),
        base_url=endpoint.base_url,
        max_retries=0,
        timeout=None,
        http_client=open_client(client),
    )
    # Arguments that the constructor does not get come from variables that the lane does not know.
    sdk.organization, sdk.project = endpoint.organization or None, endpoint.project or None
    return PostingClient("openai", endpoint, sdk)


def _wrap_anthropic(endpoint: Endpoint, client: HttpClient) -> HttpClient:
    import anthropic

    from trioeval.providers.sdk.transport import PostingClient, open_client, own_key

    sdk = anthropic.AsyncAnthropic(
        api_key=own_key(endpoint),
        base_url=endpoint.base_url,
        max_retries=0,
        timeout=None,
        http_client=open_client(client),
    )
    return PostingClient("anthropic", endpoint, sdk)


def _wrap_google(endpoint: Endpoint, client: HttpClient) -> HttpClient:
    from trioeval.providers.sdk.google import wrap

    return wrap(endpoint, client)


@attrs.frozen(kw_only=True)
class Sdk:
    """One vendor's SDK."""

    plain: str
    """The prefix of the equivalent ids without the SDK."""
    vendor: str
    """The module that reads those."""
    package: str
    """The imported package; installed with the extra `name`."""
    name: str
    """Name of the extra."""
    wrap: Wrap
    refused: Mapping[str, str] = attrs.field(factory=dict)
    """Unsupported beginnings of the text after the prefix, and the features that they stand for."""
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
"""SDKs by the prefix of their ids."""


@attrs.frozen
class SdkSettings(AdapterSettings):
    """The settings of an entry that is valid without the SDK, and so with it.

    Its lane is that of the entry without the SDK: the service counts both together.
    """

    sdk: Sdk

    @asynccontextmanager
    async def open(self, shared: ProviderResources) -> AsyncGenerator[HttpProvider]:
        """Open the adapter with the SDK as its client."""
        client = self.sdk.wrap(self.adapter.endpoint, await shared.http())
        yield HttpProvider(self.adapter, client)


def read(
    prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> ProviderSettings | list[Problem]:
    """Read an entry: the text after the prefix, and the config, are those of the vendor; see `Reader`.

    A missing extra is reported together with all other problems.
    """
    sdk = SDKS[prefix]
    problems = check_extra(prefix, sdk.package, sdk.name)
    if not rest.strip():
        hint = f"write {prefix}:<model>"
        return [*problems, Problem(".id", f'"{prefix}:" has no model name', hint)]
    for beginning, feature in sdk.refused.items():
        if rest.startswith(beginning):
            instead = f"use {sdk.plain}:{rest}"
            problems.append(Problem(".id", f"the SDK does not support {feature}", instead))
    reader: Reader = importlib.import_module(f"trioeval.providers.vendors.{sdk.vendor}").read
    plain = reader(sdk.plain, rest, config, context)
    if isinstance(plain, list):
        return [*problems, *plain]
    instead = f"use {sdk.plain}:{rest}"
    if type(plain) is not AdapterSettings or plain.adapter.needs_polls:
        message = "this needs several requests, and the SDK sends only one"
        problems.append(Problem(".id", message, instead))
    elif plain.adapter.streams and not sdk.can_stream:
        message = "this SDK cannot measure the time to the first token"
        problems.append(Problem(".config.metrics", message, instead))
    elif not problems:
        return SdkSettings(plain.adapter, sdk, warnings=plain.warnings)
    return problems


def check_extra(prefix: str, package: str, extra: str) -> list[Problem]:
    """Return a problem if the package of an extra is not installed, without importing it."""
    try:
        is_there = find_spec(package) is not None
    except ModuleNotFoundError:  # a parent is missing
        is_there = False
    if is_there:
        return []
    message = f'"{prefix}:" needs the extra "{extra}"'
    return [Problem(".id", message, f"pip install 'trioeval[{extra}]'")]
