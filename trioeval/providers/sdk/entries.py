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
from trioeval.providers.http.wire import HttpClient, HttpRequest

PLACEHOLDER = "none"
"""The key for a service that needs none: SDKs insist on one."""

Wrap: TypeAlias = Callable[[Endpoint, HttpClient], HttpClient]
"""Puts an SDK in front of a client."""


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
    """Of the extra, and of the module beside this one that has a `wrap`."""
    refused: Mapping[str, str] = attrs.field(factory=dict)
    """Beginnings of what follows the prefix that it cannot be asked for, and what they are."""
    can_stream: bool = True


SDKS: Mapping[str, Sdk] = {
    "openai-sdk": Sdk(plain="openai", vendor="openai", package="openai", name="openai"),
    "anthropic-sdk": Sdk(
        plain="anthropic", vendor="anthropic", package="anthropic", name="anthropic"
    ),
    "google-sdk": Sdk(
        plain="google",
        vendor="gemini",
        package="google.genai",
        name="google",
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

    name: str

    @asynccontextmanager
    async def open(self, shared: Shared) -> AsyncGenerator[HttpProvider]:
        """The adapter with the SDK for its client. Imports the SDK, which takes up to a second."""
        wrap: Wrap = importlib.import_module(f"trioeval.providers.sdk.{self.name}").wrap
        yield HttpProvider(self.adapter, wrap(self.adapter.endpoint, await shared.http()))


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
        return SdkSettings(plain.adapter, sdk.name)
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


def own_key(endpoint: Endpoint) -> str:
    """The key that an SDK is made with."""
    return endpoint.credential.rsplit(" ", 1)[-1] or PLACEHOLDER


def other_headers(endpoint: Endpoint, request: HttpRequest) -> dict[str, str]:
    """The headers of a built request without the key, which the SDK sends in its own way.

    An authorization that the config's `headers` give in full is sent as it is.
    """
    name, key = endpoint.service.key_header, endpoint.credential
    own = f"Bearer {key}" if name == "authorization" else key
    return {
        header: text for header, text in request.headers.items() if header != name or text != own
    }
