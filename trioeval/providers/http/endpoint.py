"""The endpoint of a service: URL, credential and settings, read once from config and environment.

The same for all services over HTTP: their differences are rows of data, each a `Service`. All problems are
found here, before the first call.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import attrs

from trioeval.errors import Problem
from trioeval.providers.bounds import MAX_RESPONSE, MOST_BYTES
from trioeval.providers.config import (
    PRICE,
    THIS_PROVIDER,
    Key,
    config_path,
    is_positive,
    is_text,
    is_visible,
    is_visible_text,
    show,
    to_snake,
)
from trioeval.providers.secrets import is_secret_name, longest_first, secret_parts, without_scheme

if TYPE_CHECKING:
    from trioeval.providers.prices import Price

ATTEMPT_LIMIT = 300.0
"""Maximum seconds of one exchange if neither config nor environment sets it."""
LIMIT_VARIABLE = "REQUEST_TIMEOUT_MS"
"""The environment variable that sets it, in milliseconds."""

_PORTS = {"http": 80, "https": 443}


def _is_headers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        is_visible_text(part) for pair in value.items() for part in pair
    )


URL_PART = "letters, digits, dots, hyphens and underscores"


def is_url_part(value: Any) -> bool:
    """Return whether a value is a name that changes neither the host nor the path around it."""
    return isinstance(value, str) and re.fullmatch(r"\w[\w.-]*", value, re.ASCII) is not None


ENDPOINT_KEYS = (
    Key("apiKey", "text", is_text, secret=True),
    Key("apiKeyEnvar", "text", is_text),
    Key("apiBaseUrl", "text", is_text, secret=True),
    Key("apiHost", "text", is_text, secret=True),
    Key("headers", "an object of printable ASCII texts", _is_headers, secret=True),
    Key("organization", "printable ASCII text", is_visible_text),
    Key("project", "printable ASCII text", is_visible_text),
    Key("apiVersion", "printable ASCII text", is_visible_text),
    Key("timeoutMs", "a number of milliseconds above 0", is_positive),
    MAX_RESPONSE,
    PRICE,
)
"""Keys that every service over HTTP supports."""


def is_secret_header(name: str) -> bool:
    """Return whether a header's value is never shown or stored."""
    return is_secret_name(name)


@attrs.frozen
class UrlPart:
    """A part of a base URL that a config key or an environment variable sets."""

    variable: str | None = None
    default: str | None = None
    """None if it has to be set; "{model}" is the model."""


KINDS = ("chat", "responses", "embedding", "embeddings", "moderation", "completion")
"""The kinds of requests that most services have."""


@attrs.frozen(kw_only=True)
class Service:
    """The description of a kind of service."""

    family: str
    """The first part of lane keys, and the key of prices."""
    default_url: str | None
    """Base URL without a trailing slash; None if the user has to set it."""
    key_variables: tuple[str, ...]
    """Environment variables for the key; the first one that is set applies."""
    url_variables: tuple[str, ...] = ()
    """Environment variables for the base URL."""
    host_variables: tuple[str, ...] = ()
    """Environment variables for its host alone; they take precedence over whole URLs."""
    host_path: str = "/v1"
    """The path after a host that is given alone."""
    key_header: str = "authorization"
    """The header for the key; `authorization` holds it as a bearer token."""
    credential: str = "api_key"
    """The config key of the credential; with another one, `apiKey` is that of the service behind."""
    needs_key: bool = True
    is_router: bool = False
    """True if it passes calls on to services that cost money, wherever it runs."""
    organization_variable: str | None = None
    account_headers: Mapping[str, str] = attrs.field(factory=dict)
    """The headers for `organization` and `project`; a value without a header is an error."""
    limits_per_model: bool = True
    """True if each model has its own rate limits, and so its own lane."""
    url_template: str | None = None
    """The base URL with the names of `parts` in braces, if the config sets one or there is no other URL."""
    parts: Mapping[str, UrlPart] = attrs.field(factory=dict)
    """The parts of `url_template`, by snake_case config key; their values are names, never paths."""
    path: str = ""
    """The end of every base URL, added if missing; `{model}` is the model."""
    paths: Mapping[str, str] = attrs.field(factory=dict)
    """Paths used instead if the config has one of these keys, whose values replace their names in braces."""
    version_path: str | None = None
    """The path used instead if the config sets an `apiVersion`; `{model}` is the model."""
    openai_models: bool = False
    """True if its models are OpenAI's own, whose features follow from their names."""
    variables: Mapping[str, str] = attrs.field(factory=dict)
    """Environment variables for defaults of the body, by key."""
    renames: Mapping[str, str] = attrs.field(factory=dict)
    """Other names that the service uses for keys of the body."""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    """The headers for some config keys, which are not in the body then; a scheme may follow a name."""
    plain_models: str = ""
    """Pattern of models that get no default temperature, because they refuse one; "" for none."""
    kinds: tuple[str, ...] = KINDS
    """The kinds of requests that an id may name; the first one if it names none."""
    embeds_by_name: bool = False
    """True if models with "embedding" in their names are called for embeddings."""
    rejects: frozenset[str] = frozenset()
    """Keys of the body that the service refuses."""
    url_keys: str = "apiBaseUrl"
    """The config keys that decide the base URL, for messages."""
    cost_field: tuple[str, ...] = ()
    """Path of the field in its replies with the cost in US dollars."""
    keys: tuple[Key, ...] = ()
    """Config keys of this service alone."""
    config_names: Mapping[str, str] = attrs.field(factory=dict)
    """Other names of our config keys, both in snake_case."""
    body_names: Mapping[str, str] = attrs.field(factory=dict)
    """Fields of the body for config keys that are not ours and have another name there."""
    hosts: tuple[str, ...] = ()
    """The vendor's hosts besides that of the default URL; `*` is one or more letters, digits and hyphens."""

    def key_name(self, name: str) -> str:
        """Return a config key as documented, from its snake_case name."""
        known = {to_snake(key.name): key.name for key in (*ENDPOINT_KEYS, *self.keys)}
        return known.get(name, name)


@attrs.frozen(kw_only=True, slots=False)
class Endpoint:
    """One model at one base URL, with everything that its requests have in common."""

    service: Service = attrs.field(repr=lambda service: service.family)
    model: str
    base_url: str = attrs.field(repr=False)
    """Normalised: host in lower case, without a default port or a trailing slash."""
    query: str = attrs.field(default="", repr=False)
    """The end of every URL, with its question mark."""
    headers: Mapping[str, str] = attrs.field(repr=False)
    """Headers with lower-case names, including the credential."""
    credential: str = attrs.field(repr=False)
    """The text that identifies the account: the key without its scheme; "" if there is none."""
    other_secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    """Secrets that requests are signed with, or that their bodies contain, longest first."""
    organization: str = attrs.field(default="", repr=False)
    project: str = attrs.field(default="", repr=False)
    timeout: float = ATTEMPT_LIMIT
    """Maximum seconds of one exchange, > 0."""
    max_reply_bytes: int = MOST_BYTES
    """Maximum size of a reply in bytes."""
    price: Price | None = None
    """None if no price is known."""
    url_variable: str = attrs.field(default="", eq=False)
    """The environment variable of the base URL; "" if it comes from elsewhere."""
    sent_variables: tuple[str, ...] = attrs.field(default=(), eq=False)
    """Environment variables that identify the account."""
    key_source: str = attrs.field(default="", eq=False)
    """The place of the credential, for messages: `OPENAI_API_KEY`; "" if unknown."""

    @property
    def url_source(self) -> str:
        """The place of the base URL, for messages."""
        return self.url_variable or self.service.url_keys

    @property
    def costs_money(self) -> bool:
        """True if its replies cost money; not for a server on this machine, unless it is a router."""
        service = self.service
        return service.is_router or (service.needs_key and not is_loopback(self.base_url))

    def url(self, path: str) -> str:
        """Return the URL of a path below the base URL: `chat/completions`."""
        return f"{self.base_url}/{path}{self.query}"

    @functools.cached_property
    def host(self) -> str:
        """Host of the base URL."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def port(self) -> int | None:
        """Port of the base URL, explicit or default; None without a URL."""
        parts = urlsplit(self.base_url)
        return parts.port or _PORTS.get(parts.scheme)

    @functools.cached_property
    def secrets(self) -> tuple[str, ...]:
        """Texts that messages must not contain, longest first."""
        values = [value for name, value in self.headers.items() if is_secret_name(name)]
        parts = {part for value in values for part in secret_parts(value)}
        return longest_first({*parts, self.credential, *self.other_secrets} - {""})

    @property
    def lane_key(self) -> str:
        """Family, base URL, digest of the credential, organization, project and model.

        Entries that are equal in these share their rate limits, and so their lane.
        """
        account = [digest(self.credential), self.organization or "-"]
        if self.project:
            account.append(self.project)
        model = [self.model] if self.service.limits_per_model else []
        return "|".join((self.service.family, self.base_url, *account, *model))


def digest(credential: str) -> str:
    """Return a short digest that identifies a credential in a lane's name without revealing it."""
    return hashlib.sha256(credential.encode()).hexdigest()[:12] if credential else "-"


def read_endpoint(
    service: Service, model: str, given: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[Endpoint | None, list[Problem]]:
    """Return the endpoint of an entry, and the problems of the entry.

    Args:
        service: The description of the service.
        model: The model's name at the service.
        given: The values of `ENDPOINT_KEYS`, by snake_case key; None counts as absent.
        environ: Environment variables; empty values count as absent.
    """
    from trioeval.providers.prices import list_prices, read_price

    given = {name: value for name, value in given.items() if value is not None}
    found, url_variable, problems = _base_url(service, model, given, environ)
    service = attrs.evolve(service, path=_path(service, model, given))
    base_url, query, faults = _versioned(service, model, found, given.get("api_version"))
    problems += faults
    headers = {name.lower(): value for name, value in given.get("headers", {}).items()}
    key = key_variable = ""
    key_source = "the key in the headers of the config"
    given_key = headers.get(service.key_header, "")
    if service.credential == "api_key":
        given_key = given_key or headers.get("authorization", "")
    if not given_key:
        key, key_variable, faults = _key(service, given, environ, base_url)
        key_source = key_variable or ("config.apiKey" if key else "")
        key_source = key_source or " or ".join(service.key_variables)
        problems += faults
    limit, faults = read_limit(given, environ)
    problems += faults
    account, account_variable, faults = _account(service, given, headers, environ)
    problems += faults
    if problems:
        return None, problems
    own = {service.account_headers[name]: value for name, value in account.items()}
    own |= _headers(service, given)
    if key:
        own[service.key_header] = f"Bearer {key}" if service.key_header == "authorization" else key
    price = given.get("price")
    return Endpoint(
        service=service,
        model=model,
        base_url=base_url,
        query=query,
        headers=own | headers,
        credential=key or without_scheme(given_key),
        organization=account.get("organization", ""),
        project=account.get("project", ""),
        timeout=limit,
        max_reply_bytes=given.get("max_response_bytes", MOST_BYTES),
        price=list_prices().find(service.family, model) if price is None else read_price(price),
        url_variable=url_variable,
        sent_variables=tuple(filter(None, (key_variable, account_variable))),
        key_source=key_source,
    ), []


def read_limit(given: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[float, list[Problem]]:
    """Return the maximum seconds of one exchange, and the problems of the environment variable for it.

    Example:
        >>> read_limit({}, {"REQUEST_TIMEOUT_MS": "500"}), read_limit({"timeout_ms": 1}, {})
        ((0.5, []), (0.001, []))
    """
    written = environ.get(LIMIT_VARIABLE, "").strip()
    if "timeout_ms" in given or not written:
        return given.get("timeout_ms", ATTEMPT_LIMIT * 1000) / 1000, []
    try:
        milliseconds = float(written)
    except ValueError:
        milliseconds = math.nan
    if 0 < milliseconds < math.inf:
        return milliseconds / 1000, []
    right = "a number of milliseconds above 0"
    fault = f"the environment variable {LIMIT_VARIABLE} must be {right}, got {show(written)}"
    return ATTEMPT_LIMIT, [Problem(config_path("timeoutMs"), fault)]


def _account(
    service: Service,
    given: Mapping[str, Any],
    headers: Mapping[str, str],
    environ: Mapping[str, str],
) -> tuple[dict[str, str], str, list[Problem]]:
    """Return organization and project, the variable for one of them, and their problems."""
    names = ("organization", "project")
    account = {name: given[name] for name in names if given.get(name)}
    problems: list[Problem] = []
    variable = service.organization_variable
    named = "" if variable is None else environ.get(variable, "").strip()
    is_named = bool(named) and "organization" not in account
    if is_named:
        account["organization"] = named
        if not is_visible(named):
            fault = f"the environment variable {variable} must be printable ASCII text"
            problems.append(Problem(".config.organization", fault))
    sent = {name: headers.get(header) for name, header in service.account_headers.items()}
    explicit = {name: value for name, value in sent.items() if value}
    used = variable if is_named and variable and "organization" not in explicit else ""
    return account | explicit, used, problems


def _versioned(
    service: Service, model: str, base_url: str, version: str | None
) -> tuple[str, str, list[Problem]]:
    """Return the base URL with the service's path, and the query for an API version."""
    if version is not None and service.version_path is None:
        fault = f"{service.family} has no API versions"
        return base_url, "", [Problem(".config.apiVersion", fault, "leave it out")]
    root = _without_path(base_url, service.path)
    if version is None or service.version_path is None:
        return f"{root}{service.path}", "", []
    path = service.version_path.format(model=quote(model, safe=""))
    return f"{root}{path}", f"?api-version={quote(version, safe='')}", []


def _without_path(url: str, path: str) -> str:
    """Return the URL without the longest beginning of the path that it ends in."""
    while path and not url.endswith(path):
        path = path.rpartition("/")[0]
    return url.removesuffix(path)


def _headers(service: Service, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers for config keys of the service, and for a key of the service behind it."""
    found: dict[str, str] = {}
    for name, rule in service.headers.items():
        if (value := given.get(name)) is not None:
            header, _, scheme = rule.partition(" ")
            text = value if isinstance(value, str) else json.dumps(value)
            found[header] = f"{scheme} {text}" if scheme else text
    if service.credential != "api_key" and given.get("api_key"):
        found["authorization"] = f"Bearer {given['api_key'].strip()}"
    return found


def _path(service: Service, model: str, given: Mapping[str, Any]) -> str:
    """Return the end of the base URL for a model."""
    for name, path in service.paths.items():
        if given.get(name):
            return path.replace(f"{{{name}}}", quote(given[name], safe=""))
    return service.path.replace("{model}", quote(model, safe="/"))


def _filled_url(
    service: Service, model: str, given: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[str, list[Problem]]:
    """Return `url_template` with its parts, and the problems of missing or invalid ones."""
    url, problems = service.url_template or "", []
    for name, part in service.parts.items():
        variable = given.get(f"{name}_envar") or part.variable
        found = given.get(name) or (environ.get(variable, "").strip() if variable else "")
        text = found or (part.default or "").replace("{model}", model)
        path = config_path(service.key_name(name))
        if not text:
            setting = f", or {variable} in the environment" if variable else ""
            hint = f"set config.{service.key_name(name)}{setting}, or config.apiBaseUrl"
            fault = f"{THIS_PROVIDER} needs {service.key_name(name)}"
            problems.append(Problem(path, fault, hint))
        elif found and not is_url_part(found):
            source = f"the environment variable {variable} " if name not in given else ""
            problems.append(Problem(path, f"{source}must be {URL_PART}, got {show(text)}"))
        url = url.replace(f"{{{name}}}", quote(text, safe=""))
    return url, problems


def _base_url(
    service: Service, model: str, given: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[str, str, list[Problem]]:
    """Return the base URL, its environment variable, and its problems; the first value found applies."""
    path = service.host_path
    places = [
        ("apiHost", given.get("api_host"), True),
        ("apiBaseUrl", given.get("api_base_url"), False),
    ]
    places += [(name, environ.get(name), True) for name in service.host_variables]
    places += [(name, environ.get(name), False) for name in service.url_variables]
    for place, text, is_host in places:
        if not text or not text.strip():
            continue
        url = f"https://{text.strip()}{path}" if is_host else text.strip()
        fault = url_fault(url, path if is_host else None)
        variable = "" if place.startswith("api") else place
        if fault is None:
            return _normal(url), variable, []
        if not variable:
            return url, "", [Problem(config_path(place), fault)]
        message = f"the environment variable {place} {fault}"
        return url, variable, [Problem(".config.apiBaseUrl", message)]
    if service.url_template and (service.default_url is None or service.parts.keys() & given):
        url, problems = _filled_url(service, model, given, environ)
        return url, "", problems
    if service.default_url is not None:
        return service.default_url, "", []
    variable = service.url_variables[0]
    hint = f"set config.apiBaseUrl, or {variable} in the environment or in a file given with --env-file"
    return "", "", [Problem(".config.apiBaseUrl", f"{THIS_PROVIDER} needs a base URL", hint)]


def _normal(url: str) -> str:
    """Return the only spelling of a valid URL; different spellings would be different lanes.

    Example:
        >>> _normal("HTTPS://API.openai.com:443/v1/"), _normal("http://[::1]:8080")
        ('https://api.openai.com/v1', 'http://[::1]:8080')
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    usual = _PORTS[parts.scheme]
    port = "" if parts.port in (None, usual) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"


def url_fault(url: str, host_path: str | None) -> str | None:
    """Return the fault of a base URL, or None; the URL itself is not shown, it may hold a password."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "must be an http or https URL with a host"
    if host_path is not None and parts.path != host_path:
        return "must be a host alone; a whole URL goes into apiBaseUrl"
    if parts.scheme not in ("http", "https") or not has_host:
        return "must be an http or https URL with a host"
    if not is_visible(url) or " " in url:
        return "must be a URL of printable ASCII characters"
    if parts.username is not None or parts.password is not None:
        return "must not hold a user or a password; use apiKey or headers"
    if parts.query or parts.fragment:
        return "must not have a query or a fragment"
    return None


def _key(
    service: Service, given: Mapping[str, Any], environ: Mapping[str, str], base_url: str
) -> tuple[str, str, list[Problem]]:
    """Return the key or "", the variable that holds it, and the problems."""
    own = service.key_name(service.credential)
    place = next((name for name in (own, "apiKeyEnvar") if to_snake(name) in given), None)
    variables = (given["api_key_envar"],) if "api_key_envar" in given else service.key_variables
    found = [(name, environ[name].strip()) for name in variables if environ.get(name, "").strip()]
    if service.credential in given:
        found.insert(0, ("", given[service.credential].strip()))
    path = config_path(place or own)
    if found:
        variable, key = found[0]
        if is_visible(key) and " " not in key:
            return key, variable, []
        source = f"the key in {variable}" if variable else "the key"
        return "", "", [Problem(path, f"{source} has characters that are not allowed in a header")]
    is_optional = given.get("api_key_required") is False or not service.needs_key
    if place is None and (is_optional or is_loopback(base_url)):
        return "", "", []
    if place == "apiKeyEnvar":
        fault = f"the environment variable {variables[0]} is not set"
        hint = f"set {variables[0]} in the environment or in a file given with --env-file"
        return "", "", [Problem(path, fault, hint)]
    named = " or ".join(service.key_variables)
    hint = f"set {named} in the environment or in a file given with --env-file, or config.{own}"
    return "", "", [Problem(path, f"{THIS_PROVIDER} needs an API key", hint)]


def is_loopback(url: str) -> bool:
    """Return whether a base URL is on this machine; most services there need no key."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return is_own_machine(host)


def is_own_machine(host: str) -> bool:
    """Return whether the host of a URL is this machine, by its loopback name or address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
