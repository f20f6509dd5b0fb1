"""Vertex AI: Gemini, Claude and Llama on Google Cloud, and its embeddings, images and videos.

Requests and replies have the form of the model's vendor; what differs is the URL, which names project and
region, and the account: an access token, or an API key ("express mode").
"""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import attrs

from trioeval.errors import Problem
from trioeval.paths import Refused
from trioeval.providers.base import Reply
from trioeval.providers.config import (
    THIS_PROVIDER,
    EntryContext,
    Key,
    ProviderResources,
    ProviderSettings,
    config_path,
    did_you_mean,
    is_count,
    is_flag,
    is_json_object,
    is_text,
    is_texts,
    nearest,
    read_config,
    show,
    to_snake,
)
from trioeval.providers.http.adapter import METRICS, Adapter, AdapterSettings, HttpProvider
from trioeval.providers.http.endpoint import Endpoint, Service, digest, read_endpoint
from trioeval.providers.http.replies import count, field, objects, read_number
from trioeval.providers.http.wire import HttpReply
from trioeval.providers.other_keys import OtherKeys
from trioeval.providers.prices import list_prices
from trioeval.providers.secrets import longest_first
from trioeval.providers.vendors import anthropic_request as anthropic_body
from trioeval.providers.vendors.anthropic import MessagesAdapter
from trioeval.providers.vendors.gemini import GenerateAdapter
from trioeval.providers.vendors.gemini_media import VertexImagenAdapter, image_model
from trioeval.providers.vendors.gemini_video import VertexVeoAdapter
from trioeval.providers.vendors.google_tokens import (
    METADATA_HOST,
    SCOPE,
    SERVICE_ACCOUNT,
    AuthorizedClient,
    GoogleAccount,
    credentials_fault,
    read_credentials,
    secrets_in,
)
from trioeval.providers.vendors.openai_chat import ChatAdapter
from trioeval.usage import Usage

CREDENTIALS_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
"""The environment variable with the path of the user's credentials."""

KEY_VARIABLES = ("VERTEX_API_KEY", "GOOGLE_API_KEY")

HOSTS = (
    "aiplatform.googleapis.com",
    "*-aiplatform.googleapis.com",
    "aiplatform.*.rep.googleapis.com",
)
"""Google's own hosts."""

VERTEX = Service(
    family="vertex",
    default_url=None,
    key_variables=(),
    host_variables=("VERTEX_API_HOST",),
    host_path="",
    key_header="x-goog-api-key",
    hosts=HOSTS,
    url_keys="region, apiHost, apiBaseUrl",
)

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_PROJECT = re.compile(r"[a-z0-9][a-z0-9.:-]*")


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _is_project(value: Any) -> bool:
    return isinstance(value, str) and _PROJECT.fullmatch(value) is not None


def _is_credentials(value: Any) -> bool:
    return is_text(value) or is_json_object(value)


PLACE = (
    Key("projectId", "the id of a project", _is_project),
    Key("region", "the name of a region, such as us-central1, or global", _is_name),
    Key("publisher", "letters, digits, `.`, `_` and `-`", _is_name),
    Key("apiVersion", "letters, digits, `.`, `_` and `-`", _is_name),
    Key("expressMode", "true or false", is_flag),
    Key("credentials", "credentials as JSON, or file://<path>", _is_credentials, secret=True),
    Key("keyFilename", "text", is_text),
    Key("scopes", "text or a list of texts", lambda value: is_text(value) or is_texts(value)),
    Key("googleAuthOptions", "an object", is_json_object, secret=True),
)
"""Keys of the place and the account, besides those of every service."""


class VertexGeminiAdapter(GenerateAdapter):
    """Gemini's generateContent."""

    @classmethod
    def locate(
        cls,
        service: Service,
        model: str,
        values: Mapping[str, Any],
        environ: Mapping[str, str],
    ) -> tuple[Endpoint | None, list[Problem]]:
        """Return the endpoint; version, project and region are in the path of the service."""
        return read_endpoint(service, model, values, environ)


class VertexClaudeAdapter(MessagesAdapter):
    """Anthropic messages; the version is in the body, and the model in the URL."""

    entry_keys = (  # type: ignore[assignment] # more keys
        *MessagesAdapter.entry_keys,
        Key("anthropicVersion", "text", is_text),
    )
    default_keys = ()  # type: ignore[assignment] # fewer keys

    @property
    def url(self) -> str:
        """The URL of the model's method."""
        method = "streamRawPredict" if self.streams else "rawPredict"
        return self.endpoint.url(f"models/{self.endpoint.model}:{method}")

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """The headers of Anthropic, without the version."""
        plain = super().headers
        return {name: value for name, value in plain.items() if name != "anthropic-version"}

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the body without messages; a temperature is sent only if it is set."""
        given = {**self.given, "omit_defaults": True}
        most = CLAUDE_TOKENS[anthropic_body.thinks(given.get("thinking"))]
        body = anthropic_body.fixed_body(self.endpoint.model, given, {"max_tokens": most})
        version = self.given.get("anthropic_version") or ANTHROPIC_VERSION
        rest = {name: value for name, value in body.items() if name != "model"}
        return {
            "anthropic_version": version,
            **rest,
            **({"stream": True} if self.streams else {}),
        }


ANTHROPIC_VERSION = "vertex-2023-10-16"
CLAUDE_TOKENS: Mapping[bool, int] = {False: 512, True: 2048}
"""The default maximum length of a reply, without and with thinking."""


class VertexLlamaAdapter(ChatAdapter):
    """Chat completions of Llama; the service's safety settings are on by default."""

    entry_keys = (  # type: ignore[assignment] # more keys
        *ChatAdapter.entry_keys,
        Key("topK", "a whole number of at least 1", is_count),
        Key("llamaConfig", "an object", is_json_object),
    )
    default_keys = ()  # type: ignore[assignment] # fewer keys

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the body without messages; a temperature is sent only if it is set."""
        body = dict(super().fixed_body()) | {"model": f"meta/{self.endpoint.model}"}
        if self.given.get("temperature") is None:
            body.pop("temperature", None)
        if self.given.get("top_k") is not None:
            body["top_k"] = self.given["top_k"]
        safety = field(self.given.get("llama_config"), "safetySettings")
        settings = {
            "enabled": field(safety, "enabled") is not False,
            "llama_guard_settings": field(safety, "llama_guard_settings") or {},
        }
        return {**body, "extra_body": {"google": {"model_safety_settings": settings}}}


class VertexEmbedAdapter(Adapter):
    """Embeddings of texts; a request has one text."""

    call_keys = (Key("autoTruncate", "true or false", is_flag),)
    returns = "embedding"
    show_thinking = False
    other_keys = OtherKeys(sends=False, not_here=frozenset({METRICS.name}))
    origin_fields: ClassVar[Mapping[str, str]] = {}

    @property
    def url(self) -> str:
        """The URL of the model's method."""
        return self.endpoint.url(f"models/{self.endpoint.model}:predict")

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the parameters."""
        return {"parameters": {"autoTruncate": self.given.get("auto_truncate") is True}}

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the text as the only instance."""
        return {"instances": [{"content": prompt}]}

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the vector as a list of numbers."""
        values = field(_prediction(data), "embeddings", "values")
        vector = [read_number(value) for value in values] if isinstance(values, list) else []
        if not vector or None in vector:
            raise self.failure("malformed_reply", "the reply has no vector", reply)
        return Reply(output=vector, usage=self.usage(data))

    def usage(self, data: Mapping[str, Any]) -> Usage:
        """Return the token count of the text."""
        tokens = count(_prediction(data), "embeddings", "statistics", "token_count")
        return Usage(prompt=tokens, total=tokens)

    def cost(self, usage: Usage, data: Mapping[str, Any]) -> float | None:
        """Return the cost of the text alone."""
        return super().cost(attrs.evolve(usage, completion=0), data)


def _prediction(data: Mapping[str, Any]) -> Any:
    return next(iter(objects(data, "predictions")), None)


@attrs.frozen
class VertexSettings(AdapterSettings):
    """The settings of a valid entry whose requests need an access token."""

    account: GoogleAccount
    chosen_by: str = ""
    """The config key that names credentials on the user's machine; "" for none."""

    @property
    def credential_choices(self) -> Mapping[str, str]:
        """The key that names a file of credentials."""
        return {self.chosen_by: CREDENTIALS_VARIABLE} if self.chosen_by else {}

    @asynccontextmanager
    async def open(self, shared: ProviderResources) -> AsyncGenerator[HttpProvider]:
        """Open the adapter with a client that adds access tokens."""
        secrets = self.adapter.endpoint.secrets
        client = AuthorizedClient(await shared.http(), self.account, secrets)
        yield self.adapter.connect(client)


@attrs.frozen(kw_only=True)
class _ModelFamily:
    """The models of one vendor on Vertex."""

    adapter: type[Adapter]
    path: str
    """The path after the region."""
    express: bool = False
    """True if an API key is enough."""
    version: str = ""
    """The API version; "" leaves it to config and environment."""
    region_variables: tuple[str, ...] = ("VERTEX_REGION", "GOOGLE_CLOUD_LOCATION")
    """Environment variables for the region."""
    is_global: bool = False
    """True if the region is `global` without another one; else it is `us-central1`."""
    prices: str = ""
    """The family of the price list."""
    aliases: Mapping[str, str] = attrs.field(factory=dict)
    """Keys that all models of Vertex share, with those of the adapter, in snake_case."""


_GEMINI = _ModelFamily(
    adapter=VertexGeminiAdapter,
    path="publishers/{publisher}",
    express=True,
    is_global=True,
    prices="google",
)
_CLAUDE = _ModelFamily(
    adapter=VertexClaudeAdapter,
    path="publishers/anthropic",
    version="v1",
    is_global=True,
    prices="anthropic",
    aliases={"max_output_tokens": "max_tokens", "system_instruction": "system"},
)
_LLAMA = _ModelFamily(
    adapter=VertexLlamaAdapter,
    path="endpoints/openapi",
    version="v1beta1",
    aliases={"max_output_tokens": "max_tokens"},
)
_EMBEDDING = _ModelFamily(
    adapter=VertexEmbedAdapter, path="publishers/google", prices="google", region_variables=()
)
_IMAGEN = _ModelFamily(
    adapter=VertexImagenAdapter, path="publishers/google", region_variables=("GOOGLE_LOCATION",)
)
_VEO = attrs.evolve(_IMAGEN, adapter=VertexVeoAdapter)
_BY_KIND = {"embedding": _EMBEDDING, "embeddings": _EMBEDDING, "video": _VEO}
"""By the kind in the id."""
_FAMILIES = {"claude": _CLAUDE, "gemini": _GEMINI, "llama": _LLAMA, "imagen": _IMAGEN}
"""By a part of the model's name."""

_LONGEST_PATH = 500
_MODEL = re.compile(r"[A-Za-z0-9._@-]+")
_IDS = (
    "write vertex:<model>, vertex:embedding:<model>, vertex:image:<model> or vertex:video:<model>"
)


def read(
    prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> ProviderSettings | list[Problem]:
    """Read an entry `vertex:<model>` or `vertex:<kind>:<model>`; see `Reader`."""
    kind, _, model = rest.rpartition(":")
    if kind not in ("", "chat", "image", *_BY_KIND) or not _MODEL.fullmatch(model):
        return [Problem(".id", f'"{prefix}:{rest}" is not a valid Vertex id', _IDS)]
    model = image_model(model) if kind == "image" else model
    if kind in _BY_KIND:
        family = _BY_KIND[kind]
    else:
        found = [family for part, family in _FAMILIES.items() if part in model]
        if not found:
            hint = f"a name with {', '.join(_FAMILIES)} in it decides how the model is called"
            return [Problem(".id", f'"{model}" is not a known kind of Vertex model', hint)]
        family = found[0]
    names = {to_snake(key.name) for key in PLACE}
    own = {name: value for name, value in config.items() if to_snake(str(name)) in names}
    others = {name: value for name, value in config.items() if name not in own}
    values, problems = read_config(own, PLACE)
    # Otherwise they would be sent, and credentials with them.
    misspelt = {name: close for name in others if (close := _names_like(name))}
    others = {name: value for name, value in others.items() if name not in misspelt}
    problems += (
        Problem(config_path(name), f'"{name}" is not a key', did_you_mean(close))
        for name, close in misspelt.items()
    )
    place = {name: value for name, value in values.items() if value is not None}
    options = place.pop("google_auth_options", {})
    for option, name in (("keyFilename", "key_filename"), ("credentials", "credentials")):
        if _is_credentials(options.get(option)):
            place.setdefault(name, options[option])
    return _Entry(family, model, place, context).settings(others, problems)


_ALIKE = 0.8  # `anthropicVersion` is not a misspelling of `apiVersion`


def _names_like(name: object) -> list[str]:
    """Return the names of `PLACE` that a key resembles."""
    plain = {key.name.lower(): key.name for key in PLACE}
    return [plain[one] for one in nearest(to_snake(str(name)).replace("_", ""), plain, _ALIKE)]


@attrs.frozen
class _Entry:
    """An entry that is being read."""

    family: _ModelFamily
    model: str
    place: Mapping[str, Any]
    """The values of `PLACE` by snake_case key."""
    context: EntryContext

    def settings(
        self, config: Mapping[str, Any], problems: list[Problem]
    ) -> ProviderSettings | list[Problem]:
        """Return the settings, or all problems.

        Args:
            config: The keys besides those of the place.
            problems: The problems so far.
        """
        family, aliases = self.family, self.family.aliases
        given = {to_snake(str(name)) for name in config}
        config = {
            aliases.get(to_snake(str(name)), str(name)): _blocks(value)
            if family is _CLAUDE
            else value
            for name, value in config.items()
            if aliases.get(to_snake(str(name))) not in given
        }
        express = self._uses_key(config)
        source, faults = (None, []) if express else self._source(config)
        problems += faults
        project, faults = (None, []) if express else self._project(source)
        problems += faults
        service = self._service(project, has_key=express)
        if not express:
            config = {name: value for name, value in config.items() if not _is_key(name)}
        environ = self.context.environ
        settings = self.family.adapter.read_entry(service, self.model, config, environ)
        if isinstance(settings, list) or problems:
            return [*problems, *(settings if isinstance(settings, list) else ())]
        adapter = settings.adapter
        endpoint = attrs.evolve(adapter.endpoint, service=attrs.evolve(service, needs_key=True))
        if "price" not in given and self.family.prices:
            endpoint = attrs.evolve(endpoint, price=self._price())
        if source is None:
            return attrs.evolve(settings, adapter=attrs.evolve(adapter, endpoint=endpoint))
        endpoint = attrs.evolve(
            endpoint,
            organization=digest(source.account),
            other_secrets=longest_first(secrets_in(source.info or {})),
            sent_variables=() if self._is_own else (CREDENTIALS_VARIABLE,),
            key_source="the Google credentials and their permissions",
        )
        chosen = "keyFilename" if "key_filename" in self.place else ""
        if str(self.place.get("credentials", "")).startswith("file://"):
            chosen = "credentials"
        adapter = attrs.evolve(adapter, endpoint=endpoint)
        return VertexSettings(adapter, source, chosen, warnings=settings.warnings)

    @property
    def _is_own(self) -> bool:
        """True if the credentials are in the suite itself."""
        return is_json_object(self._written)

    @property
    def _written(self) -> Any:
        """The credentials in the config; a text that is JSON is parsed."""
        given = self.place.get("credentials")
        if isinstance(given, str) and not given.startswith("file://"):
            return read_credentials(given)
        return given

    def _uses_key(self, config: Mapping[str, Any]) -> bool:
        """Return whether requests have an API key instead of a token."""
        if not self.family.express or self.place.get("express_mode") is False:
            return False
        if _has_token(config) or self.place.keys() & {"credentials", "key_filename"}:
            return False
        return any(map(_is_key, config)) or any(map(self.context.environ.get, KEY_VARIABLES))

    def _source(self, config: Mapping[str, Any]) -> tuple[GoogleAccount | None, list[Problem]]:
        """Return where tokens come from; None if the headers of the config have one."""
        if _has_token(config):
            return None, []
        path, info, fault = self._credentials()
        if isinstance(fault, Problem):
            return None, [fault]
        if info is not None and (wrong := credentials_fault(info)):
            fault = f"the credentials {wrong}" if fault is None else fault
        if fault is not None:
            return None, [Problem(path, fault)]
        if info is not None and info["type"] == SERVICE_ACCOUNT and not _can_sign():
            message = 'signing with the key of a service account needs the extra "google"'
            return None, [Problem(".id", message, "pip install 'trioeval[google]'")]
        scopes = self.place.get("scopes", SCOPE)
        return GoogleAccount(
            info=info,
            scopes=(scopes,) if isinstance(scopes, str) else tuple(scopes),
            metadata_host=self.context.environ.get("GCE_METADATA_HOST") or METADATA_HOST,
        ), []

    def _credentials(self) -> tuple[str, Any, str | Problem | None]:
        """Return the key that decides the credentials, their data, or their fault.

        Without data and fault the account is that of the machine.
        """
        environ, path = self.context.environ, ".config.credentials"
        written = self.place.get("credentials")
        if isinstance(written, str) and written.startswith("file://"):
            return path, *self._file(written.removeprefix("file://"), path)
        if written is not None:
            fault = None if self._is_own else "must be a JSON object (its value is not shown)"
            return path, self._written, fault
        if (named := self.place.get("key_filename")) is not None:
            path = ".config.keyFilename"
            return path, *self._file(named, path)
        if file := environ.get(CREDENTIALS_VARIABLE, "").strip():
            info, fault = _read_file(Path(file))
            source = f"the environment variable {CREDENTIALS_VARIABLE}: {fault}"
            return path, info, fault and source
        return path, _read_file(_login_file(environ))[0], None

    def _file(self, named: str, path: str) -> tuple[Any, str | Problem | None]:
        place = self.context.place(named)
        if isinstance(place, Refused):
            return None, Problem(path, place.message, place.hint)
        return _read_file(place)

    def _project(self, source: GoogleAccount | None) -> tuple[str | None, list[Problem]]:
        environ = self.context.environ
        if found := self.place.get("project_id"):
            return found, []
        for variable in PROJECT_VARIABLES:
            if found := environ.get(variable, "").strip():
                if _is_project(found):
                    return found, []
                message = f"the environment variable {variable} is not the id of a project"
                return None, [Problem(".config.projectId", message)]
        found = None if source is None or source.info is None else source.info.get("project_id")
        if _is_project(found):
            return found, []
        hint = (
            "set config.projectId, or GOOGLE_CLOUD_PROJECT in the environment or in a file given "
            "with --env-file"
        )
        message = f"{THIS_PROVIDER} needs a project"
        return None, [Problem(".config.projectId", message, hint)]

    def _service(self, project: str | None, *, has_key: bool) -> Service:
        """Return the service with the host and the path of this entry."""
        environ, family = self.context.environ, self.family
        region = self._region(has_key=has_key)
        version = family.version or self.place.get("api_version")
        version = version or environ.get("VERTEX_API_VERSION") or "v1"
        publisher = self.place.get("publisher") or environ.get("VERTEX_PUBLISHER") or "google"
        path = family.path.format(publisher=publisher)
        middle = "" if has_key else f"/projects/{project}/locations/{region}"
        return attrs.evolve(
            VERTEX,
            default_url=f"https://{_host(region)}/{version}{middle}/{path}",
            path=f"/{version}{middle}/{path}",
            key_variables=KEY_VARIABLES if has_key else (),
            needs_key=has_key,
        )

    def _region(self, *, has_key: bool) -> str:
        named = map(self.context.environ.get, self.family.region_variables)
        region: str = self.place.get("region") or next(filter(None, named), "")
        return region or ("global" if self.family.is_global and not has_key else "us-central1")

    def _price(self) -> Any:
        """Return the listed price; regions raise that of Claude by a share that is not listed."""
        if self.family is _CLAUDE and self._region(has_key=False) != "global":
            return None
        return list_prices().find(self.family.prices, self.model.replace("@", "-"))


PROJECT_VARIABLES = ("VERTEX_PROJECT_ID", "GOOGLE_PROJECT_ID", "GOOGLE_CLOUD_PROJECT")


def _has_token(config: Mapping[str, Any]) -> bool:
    """Return whether the headers of a config have a token."""
    headers = next((v for name, v in config.items() if to_snake(str(name)) == "headers"), None)
    return isinstance(headers, Mapping) and "authorization" in (
        str(name).lower() for name in headers
    )


def _is_key(name: Any) -> bool:
    return to_snake(str(name)) in ("api_key", "api_key_envar")


def _blocks(value: Any) -> Any:
    """Return an instruction in Gemini's form as blocks of Anthropic; any other value is unchanged."""
    parts = objects(value, "parts")
    return [{"type": "text", "text": one["text"]} for one in parts if "text" in one] or value


def _can_sign() -> bool:
    try:
        return find_spec("google.auth") is not None
    except ModuleNotFoundError:  # the package `google` is not installed
        return False


def _host(region: str) -> str:
    """Return the host of a region.

    Example:
        >>> _host("global"), _host("us-central1")
        ('aiplatform.googleapis.com', 'us-central1-aiplatform.googleapis.com')
    """
    if region in ("us", "eu"):
        return f"aiplatform.{region}.rep.googleapis.com"
    return (
        "aiplatform.googleapis.com" if region == "global" else f"{region}-aiplatform.googleapis.com"
    )


def _login_file(environ: Mapping[str, str]) -> Path:
    """Return the file that `gcloud auth application-default login` writes."""
    home = environ.get("HOME", "")
    folder = environ.get("CLOUDSDK_CONFIG") or f"{home}/.config/gcloud"
    return Path(folder) / "application_default_credentials.json"


def _read_file(path: Path) -> tuple[Any, str | None]:
    """Return the JSON in a file, or None and the fault."""
    try:
        info = read_credentials(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        return None, f"cannot read {show(str(path), _LONGEST_PATH)}: {reason}"
    return info, None if info is not None else f"{show(str(path), _LONGEST_PATH)} is not JSON"
