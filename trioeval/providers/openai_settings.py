"""How one OpenAI model is reached and asked: the config and environment of an entry, read once.

Everything that can be wrong with an entry is found here, before the first call.
"""

import hashlib
import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import attrs

from trioeval.errors import Problem
from trioeval.providers.config import (
    Key,
    config_path,
    is_flag,
    is_integer,
    is_json_list,
    is_json_object,
    is_number,
    is_text,
    read_config,
    to_snake,
)

DEFAULT_URL = "https://api.openai.com/v1"
DEFAULT_MAX_TOKENS = 1024

REASONING_MODEL = re.compile(r"o\d+(-|$)|gpt-5(?!(\.\d+)?-chat)")
"""Models that think before they answer: they take neither a temperature nor `max_tokens`."""

SECRET_HEADER = re.compile(
    r"authorization|api-?key|cookie|secret|password|\b(key|token)$", re.IGNORECASE
)
"""Names of headers whose values are never shown or kept."""


def _is_count(value: Any) -> bool:
    return is_integer(value) and value >= 1


def _is_stop(value: Any) -> bool:
    return isinstance(value, str) or (is_json_list(value) and all(map(is_text, value)))


def _is_choice(value: Any) -> bool:
    return is_text(value) or is_json_object(value)


def _is_headers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        is_text(part) and _is_visible(part) for pair in value.items() for part in pair
    )


def _is_visible(text: str) -> bool:
    return text.isascii() and text.isprintable()


PARAMETERS = (
    Key("temperature", "a number", is_number),
    Key("max_tokens", "a whole number of at least 1", _is_count),
    Key("max_completion_tokens", "a whole number of at least 1", _is_count),
    Key("top_p", "a number", is_number),
    Key("presence_penalty", "a number", is_number),
    Key("frequency_penalty", "a number", is_number),
    Key("seed", "a whole number", is_integer),
    Key("stop", "text or a list of texts", _is_stop),
    Key("response_format", "an object", is_json_object),
    Key("tools", "a list", is_json_list),
    Key("tool_choice", "text or an object", _is_choice),
    Key("parallel_tool_calls", "true or false", is_flag),
    Key("reasoning_effort", "text", is_text),
    Key("user", "text", is_text),
    Key("metadata", "an object", is_json_object),
)
"""Keys that go into the body under their own names."""

KEYS = (
    *PARAMETERS,
    Key("apiKey", "text", is_text, secret=True),
    Key("apiKeyEnvar", "text", is_text),
    Key("apiBaseUrl", "text", is_text, secret=True),
    Key("apiHost", "text", is_text, secret=True),
    Key("headers", "an object of printable ASCII texts", _is_headers, secret=True),
    Key("organization", "printable ASCII text", lambda text: is_text(text) and _is_visible(text)),
    Key("passthrough", "an object", is_json_object),
    Key("omitDefaults", "true or false", is_flag),
    Key("showThinking", "true or false", is_flag),
)


@attrs.frozen(kw_only=True)
class OpenAISettings:
    """One model behind one base URL, with all that its requests have in common."""

    model: str
    base_url: str
    """Without a slash at its end."""
    headers: Mapping[str, str] = attrs.field(repr=False)
    """With lower-case names, the credential included."""
    credential: str = attrs.field(repr=False)
    """What identifies the account: the key, or the authorization header; "" if there is none."""
    organization: str = ""
    parameters: Mapping[str, Any] = attrs.field(factory=dict)
    """What the body holds besides model and messages."""
    passthrough: Mapping[str, Any] = attrs.field(factory=dict)
    """Merged last, over everything."""
    show_thinking: bool = True

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that no message may contain, longest first."""
        values = (value for name, value in self.headers.items() if SECRET_HEADER.search(name))
        bare = (value.rsplit(" ", 1)[-1] for value in values)
        return tuple(sorted({*bare, self.credential} - {""}, key=len, reverse=True))

    @property
    def lane_key(self) -> str:
        """Family, base URL, digest of the credential, organisation and model.

        Entries that differ in anything else share their rate limits, and so their lane.
        """
        digest = (
            hashlib.sha256(self.credential.encode()).hexdigest()[:12] if self.credential else "-"
        )
        return "|".join(("openai", self.base_url, digest, self.organization or "-", self.model))


def read_openai(
    model: str, config: Mapping[str, Any], environ: Mapping[str, str]
) -> OpenAISettings | list[Problem]:
    """Read the config of an entry.

    A null takes a default away: `temperature: null` sends none.

    Args:
        model: The model's name, as the service knows it.
        config: The entry's config.
        environ: The environment; empty values count as absent.

    Returns:
        The settings, or everything that is wrong.
    """
    values, problems = read_config(config, KEYS)
    given = {name: value for name, value in values.items() if value is not None}
    base_url, faults = _base_url(given, environ)
    problems += faults
    headers = {name.lower(): value for name, value in given.get("headers", {}).items()}
    key, faults = ("", []) if "authorization" in headers else _key(given, environ, base_url)
    problems += faults
    organization = given.get("organization") or environ.get("OPENAI_ORGANIZATION", "").strip()
    if not _is_visible(organization):
        fault = "the environment variable OPENAI_ORGANIZATION must be printable ASCII text"
        problems.append(Problem(".config.organization", fault))
    passthrough = given.get("passthrough", {})
    if passthrough.get("stream"):
        path = ".config.passthrough.stream"
        problems.append(Problem(path, "streamed replies cannot be read", "leave it out"))
    if problems:
        return problems
    own = {
        "authorization": f"Bearer {key}" if key else "",
        "openai-organization": organization,
    }
    return OpenAISettings(
        model=model,
        base_url=base_url,
        headers={name: value for name, value in own.items() if value} | headers,
        credential=key or headers.get("authorization", ""),
        organization=organization,
        parameters=_parameters(model, values),
        passthrough=passthrough,
        show_thinking=given.get("show_thinking", True),
    )


def is_reasoning(model: str) -> bool:
    """Whether a model thinks before it answers, by its name.

    Example:
        >>> is_reasoning("openai/o3-mini"), is_reasoning("gpt-4.1")
        (True, False)
    """
    name = model.removeprefix("ft:").rsplit("/", 1)[-1]
    return REASONING_MODEL.match(name) is not None


def _parameters(model: str, values: Mapping[str, Any]) -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    if not (values.get("omit_defaults") or is_reasoning(model)):
        defaults["temperature"] = 0
        if values.get("max_completion_tokens") is None:
            defaults["max_tokens"] = DEFAULT_MAX_TOKENS
    given = {key.name: values[key.name] for key in PARAMETERS if key.name in values}
    return {name: value for name, value in (defaults | given).items() if value is not None}


def _base_url(given: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[str, list[Problem]]:
    """The base URL, and what is wrong with it; the first place that names one wins."""
    places = (
        ("apiHost", _host_url(given.get("api_host"))),
        ("apiBaseUrl", given.get("api_base_url")),
        ("OPENAI_API_HOST", _host_url(environ.get("OPENAI_API_HOST"))),
        ("OPENAI_API_BASE_URL", environ.get("OPENAI_API_BASE_URL")),
        ("OPENAI_BASE_URL", environ.get("OPENAI_BASE_URL")),
    )
    named = [(place, text.strip()) for place, text in places if text and text.strip()]
    if not named:
        return DEFAULT_URL, []
    place, url = named[0]
    fault = _url_fault(url, host_only=place in ("apiHost", "OPENAI_API_HOST"))
    if fault is None:
        return url.rstrip("/"), []
    if place.startswith("api"):
        return url, [Problem(config_path(place), fault)]
    return url, [Problem(".config.apiBaseUrl", f"the environment variable {place} {fault}")]


def _host_url(host: str | None) -> str | None:
    return f"https://{host.strip()}/v1" if host and host.strip() else None


def _url_fault(url: str, *, host_only: bool) -> str | None:
    """What is wrong with a base URL; the URL itself is not shown, it may hold a password."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "must be an http or https URL with a host"
    if host_only and parts.path != "/v1":
        return "must be a host alone; a whole URL goes into apiBaseUrl"
    if parts.scheme not in ("http", "https") or not has_host:
        return "must be an http or https URL with a host"
    if not _is_visible(url) or " " in url:
        return "must be a URL of printable ASCII characters"
    if parts.username is not None or parts.password is not None:
        return "must not hold a user or a password; use apiKey or headers"
    if parts.query or parts.fragment:
        return "must not have a query or a fragment"
    return None


def _key(
    given: Mapping[str, Any], environ: Mapping[str, str], base_url: str
) -> tuple[str, list[Problem]]:
    """The effective key, "" where there is none, and what is wrong with it."""
    variable = given.get("api_key_envar", "OPENAI_API_KEY")
    place = next((name for name in ("apiKey", "apiKeyEnvar") if to_snake(name) in given), None)
    key = str(given.get("api_key") or environ.get(variable, "")).strip()
    path = config_path(place or "apiKey")
    if key and (not _is_visible(key) or " " in key):
        source = "the key" if place == "apiKey" else f"the key in {variable}"
        return "", [Problem(path, f"{source} has characters that no header can carry")]
    if key or (place is None and _is_loopback(base_url)):
        return key, []
    if place == "apiKeyEnvar":
        return "", [Problem(path, f"the environment variable {variable} is not set")]
    hint = "set OPENAI_API_KEY in the environment, or apiKey or apiKeyEnvar in the config"
    return "", [Problem(path, "there is no API key", hint)]


def _is_loopback(url: str) -> bool:
    """Whether a base URL names this machine: services there mostly need no key."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
