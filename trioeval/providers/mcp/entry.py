"""`mcp`: the tools of servers of the Model Context Protocol; each prompt names one tool and its arguments.

A prompt is JSON: `{"tool": "add", "args": {"a": 2, "b": 2}}`. The output is the content of the tool's result
as JSON text. A server is a program that talks on its standard streams (`command`, `path`), or a service that
is called over HTTP (`url`). Reading an entry neither starts nor calls a server.
"""

import json
import re
import shlex
import sys
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from trioeval.errors import Problem, ProviderError, TemplateError
from trioeval.paths import Refused
from trioeval.providers.base import Reply, Request
from trioeval.providers.command_secrets import hide_in_command, secrets_of_command
from trioeval.providers.config import (
    EntryContext,
    Key,
    ProviderResources,
    ProviderSettings,
    config_path,
    is_amount,
    is_flag,
    is_json_list,
    is_json_object,
    is_text,
    is_texts,
    is_visible,
    nearest,
    read_config,
    show,
    to_snake,
)
from trioeval.providers.generic.auth import NO_AUTH, Auth, read_auth
from trioeval.providers.generic.keys import DROPPED, HEADER_NAME, MARK
from trioeval.providers.generic.urls import (
    parameters,
    secret_parameters,
    url_fault,
    with_query,
    without_query,
)
from trioeval.providers.http.endpoint import digest, is_secret_header
from trioeval.providers.other_keys import ALIKE
from trioeval.providers.programs.entries import ENVIRONMENT, absolute, find_fault, find_secrets
from trioeval.providers.sdk.entries import check_extra
from trioeval.providers.secrets import is_secret_name, secret_parts

if TYPE_CHECKING:
    from trioeval.providers.mcp.servers import McpServers

DEFAULT_TIMEOUT = 60.0
"""Maximum seconds of a call if neither the config nor the environment sets any."""

TIMEOUT_VARIABLE = "MCP_REQUEST_TIMEOUT_MS"

_NO_AUTH = ("", "none", "no_auth")
_MILLISECONDS = "a number of milliseconds of at least 0"
_DEFAULT_HEADER = "X-API-Key"
_CODE_KEYS = ("command", "path")
_TOOL_KEYS = ("tool", "toolName", "function", "functionName", "name")
_ARGUMENT_KEYS = ("args", "arguments", "params", "parameters")
_NAME = re.compile(r"[A-Za-z_]\w*")
_FORM = '{"tool": "<name>", "args": {…}}'


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and (not value or is_texts(value))


def _is_any_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_headers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        HEADER_NAME.fullmatch(str(name)) and isinstance(text, str) and is_visible(text)
        for name, text in value.items()
    )


_TIMEOUT = Key("timeout", _MILLISECONDS, is_amount)
_TIMEOUT_MS = Key("timeoutMs", _MILLISECONDS, is_amount)
_TRANSFORMS = ("transform_response", "response_parser")

KEYS = (
    Key("enabled", "true or false", is_flag),
    Key("server", "an object", is_json_object, secret=True),
    Key("servers", "a list of objects", is_json_list, secret=True),
    Key("serverName", "text", is_text),
    Key("tools", "a list of names", _is_list_of_texts),
    Key("exclude_tools", "a list of names", _is_list_of_texts),
    _TIMEOUT,
    _TIMEOUT_MS,
    Key("resetTimeoutOnProgress", "true or false", is_flag),
    Key("maxTotalTimeout", _MILLISECONDS, is_amount),
    Key("pingOnConnect", "true or false", is_flag),
    Key("transformResponse", "text", is_text),
    Key("responseParser", "text", is_text),
    Key("debug", "true or false", is_flag),
    Key("verbose", "true or false", is_flag),
)

SERVER_KEYS = (
    Key("name", "text", is_text),
    Key("command", "text", is_text),
    Key("args", "a list of texts", _is_any_texts, secret=True),
    ENVIRONMENT,
    Key("path", "the path of a .py or .js file", is_text),
    Key("url", "an http or https URL", is_text, secret=True),
    Key("headers", "an object of header names and printable ASCII texts", _is_headers, secret=True),
    Key("auth", "an object with a type", is_json_object, secret=True),
)


@attrs.frozen(kw_only=True)
class McpProgram:
    """A server that runs as a child process."""

    name: str
    """Its name in messages; without secrets."""
    command: tuple[str, ...] = attrs.field(repr=False)
    """At least one word."""
    cwd: Path
    """Absolute path."""
    environ: Mapping[str, str] = attrs.field(repr=False)
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)


@attrs.frozen(kw_only=True)
class McpSite:
    """A server that is called over HTTP."""

    name: str
    """Its name in messages; without secrets."""
    url: str = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """Headers of every request, with lower-case names."""
    auth: Auth = NO_AUTH
    variables: tuple[str, ...] = ()
    """Environment variables in the templates of its `auth`."""
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)


McpServer: TypeAlias = McpProgram | McpSite


@attrs.frozen(kw_only=True)
class McpSettings(ProviderSettings):
    """Servers, the tools of them that may be called, and the limits of a call."""

    id: str
    """The id in the suite."""
    servers: tuple[McpServer, ...]
    """At least one, in the order in which a tool is looked for."""
    code_keys: tuple[str, ...] = ()
    """Config keys that start programs."""
    tools: frozenset[str] | None = None
    """The only tools that may be called; None allows all."""
    excluded: frozenset[str] = frozenset()
    """Tools that may not be called."""
    timeout: float = DEFAULT_TIMEOUT
    """Maximum seconds of a call, > 0; connecting counts."""
    total: float | None = None
    """Maximum seconds of a call whose progress extends its time, > 0; None for no maximum."""
    is_extended: bool = False
    """True if a report of progress starts the time of a call anew."""
    pings: bool = False
    """True if a new connection is tested with a ping."""
    warnings: tuple[Problem, ...] = ()

    @property
    def own_name(self) -> str:
        """The id."""
        return self.id

    @property
    def lane_key(self) -> str:
        """One lane for the same servers."""
        return f"{self.id}:{', '.join(server.name for server in self.servers)}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The credentials of its servers."""
        return tuple(dict.fromkeys(text for server in self.servers for text in server.secrets))

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of its servers, and those of their tokens."""
        return tuple(_urls(self.servers))

    @property
    def named_variables(self) -> tuple[str, ...]:
        """The variables in the templates of `auth`."""
        sites = (server for server in self.servers if isinstance(server, McpSite))
        return tuple(name for site in sites for name in site.variables)

    def offers(self, tool: str) -> bool:
        """Return whether a tool of a server may be called."""
        return (self.tools is None or tool in self.tools) and tool not in self.excluded

    @asynccontextmanager
    async def open(self, shared: ProviderResources) -> AsyncGenerator["McpProvider"]:
        """Open the provider; servers are started and connected by the calls that need them."""
        from trioeval.providers.mcp.servers import open_servers  # imports the SDK

        is_remote = any(isinstance(server, McpSite) for server in self.servers)
        client = await shared.http() if is_remote else None
        async with open_servers(self, client) as servers:
            yield McpProvider(self, servers)


def _urls(servers: Iterable[McpServer]) -> Iterator[str]:
    for server in servers:
        if isinstance(server, McpSite):
            yield server.url
            if server.auth.token is not None:
                yield server.auth.token.url


def read(
    prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> McpSettings | list[Problem]:
    """Read an entry; see `Reader`. Checks that the programs exist, and starts none."""
    problems = check_extra(prefix, "mcp", "mcp")
    known, warnings = _known_keys(config)
    values, wrong = read_config(known, KEYS)
    values = {name: value for name, value in values.items() if value is not None}
    problems += wrong
    problems += (
        Problem(config_path(key), f'"{key}" is not supported', "use the entry's transform")
        for key in config
        if to_snake(str(key)) in _TRANSFORMS
    )
    if not values.get("enabled", True):
        fault = "switches off all servers, and nothing is left to call"
        problems.append(Problem(".config.enabled", fault, "leave it out"))
    if "server" in values and "servers" in values:
        hint = "move it to servers"
        warnings.append(Problem(".config.server", "is ignored, because servers is set", hint))
    servers: list[McpServer] = []
    code_keys: list[str] = []
    for path, given in _given_servers(values):
        found = _ServerEntry(path, context, warnings).read(given)
        if isinstance(found, list):
            problems += found
            continue
        servers.append(_with_own_name(found, servers))
        if isinstance(found, McpProgram):
            key = next(key for key in _CODE_KEYS if given.get(key))
            code_keys.append(f"{path.removeprefix('.config.')}.{key}")
    if not servers and not problems:
        hint = "for example server: {command: python3, args: [server.py]}"
        problems.append(Problem(".config", "has no server", hint))
    timeout = _timeout(values, context.environ)
    if isinstance(timeout, Problem):
        problems.append(timeout)
    if problems or isinstance(timeout, Problem):
        return problems
    total = values.get("max_total_timeout")
    return McpSettings(
        id=f"{prefix}:{rest}" if rest else prefix,
        servers=tuple(servers),
        code_keys=tuple(code_keys),
        tools=frozenset(values["tools"]) if "tools" in values else None,
        excluded=frozenset(values.get("exclude_tools", ())),
        timeout=timeout,
        total=total / 1000 if total else None,
        is_extended=values.get("reset_timeout_on_progress", False),
        pings=values.get("ping_on_connect", False),
        warnings=tuple(warnings),
    )


def _known_keys(config: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Return the keys that are known or misspelt, and the warnings about all others."""
    names = {to_snake(key.name) for key in KEYS}
    known: dict[str, Any] = {}
    warnings: list[Problem] = []
    for key, value in config.items():
        if to_snake(str(key)) in names or nearest(to_snake(str(key)), names, ALIKE):
            known[key] = value
        else:
            warnings.append(Problem(config_path(key), f'"{key}" is not a key, and has no effect'))
    return known, warnings


def _given_servers(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    if "servers" in values:
        return [(f".config.servers[{place}]", one) for place, one in enumerate(values["servers"])]
    return [(".config.server", values["server"])] if "server" in values else []


def _with_own_name(server: McpServer, before: Sequence[McpServer]) -> McpServer:
    """Return a server with a name that no other one has."""
    taken = {one.name for one in before}
    if server.name not in taken:
        return server
    names = (f"{server.name}:{number}" for number in range(1, len(before) + 1))
    return attrs.evolve(server, name=next(name for name in names if name not in taken))


def _timeout(values: Mapping[str, Any], environ: Mapping[str, str]) -> float | Problem:
    """Return the maximum seconds of a call."""
    given = values.get("timeout_ms") or values.get("timeout")
    if given:
        return float(given) / 1000
    text = environ.get(TIMEOUT_VARIABLE) or "0"
    if not text.isascii() or not text.isdigit():
        fault = f"the environment variable {TIMEOUT_VARIABLE} must be {_MILLISECONDS}"
        return Problem(".config.timeout", f"{fault}, got {show(text)}")
    return int(text) / 1000 or DEFAULT_TIMEOUT


@attrs.frozen
class _ServerEntry:
    """Reads one server of an entry."""

    path: str
    """Its place in the entry."""
    context: EntryContext
    warnings: list[Problem]
    """Gets the warnings about it."""

    def read(self, given: Any) -> McpServer | list[Problem]:
        """Return the server, or all of its problems."""
        if not is_json_object(given):
            return [Problem(self.path, "must be an object")]
        values, problems = read_config(given, SERVER_KEYS)
        values = {name: value for name, value in values.items() if value is not None}
        problems = [self._below(one) for one in problems]
        named = [key for key in ("command", "path", "url") if given.get(key)]
        if not named:
            hint = "a program has command or path, a service has url"
            return [*problems, Problem(self.path, "has no command, path or url", hint)]
        for key in named[1:]:
            fault = f"is ignored, because {named[0]} is set"
            self.warnings.append(Problem(f"{self.path}.{key}", fault, "keep one of them"))
        if problems:
            return problems
        return self._site(values) if named[0] == "url" else self._program(values, named[0])

    def _below(self, problem: Problem) -> Problem:
        path = problem.path
        below = path.removeprefix(".config").removeprefix(".id")
        return attrs.evolve(problem, path=f"{self.path}{below}")

    def _program(self, values: Mapping[str, Any], key: str) -> McpProgram | list[Problem]:
        directory = absolute(self.context.directory, "")
        variables = values.get("env", {})
        environ = {**self.context.environ, **variables}
        if key == "path":
            words = self._script(values["path"])
            if isinstance(words, Problem):
                return [words]
        else:
            words = [values["command"], *values.get("args", ())]
        if any("\0" in word for word in words):
            return [Problem(f"{self.path}.{key}", "must not contain a NUL character")]
        if fault := find_fault(words[0], directory, environ):
            return [attrs.evolve(fault, path=f"{self.path}.{key}")]
        shown = values["path"] if key == "path" else hide_in_command(shlex.join(words), digest)
        return McpProgram(
            name=values.get("name") or shown,
            command=tuple(words),
            cwd=directory,
            environ=environ,
            secrets=(
                *secrets_of_command(words),
                *find_secrets(variables, {}),
                *find_secrets({}, self.context.environ),
            ),
        )

    def _script(self, named: str) -> list[str] | Problem:
        """Return the command of a file of Python or JavaScript."""
        place = self.context.place(named)
        file = absolute(self.context.directory, named)
        path = f"{self.path}.path"
        if isinstance(place, Refused):
            return Problem(path, place.message, place.hint)
        if file.suffix not in (".py", ".js"):
            hint = "start any other program with command and args"
            return Problem(path, f"{show(named)} is not a .py or .js file", hint)
        if not file.is_file():
            return Problem(path, f'file "{file}" not found')
        return [sys.executable if file.suffix == ".py" else "node", str(file)]

    def _site(self, values: Mapping[str, Any]) -> McpSite | list[Problem]:
        url, headers = values["url"].strip(), values.get("headers", {})
        problems = []
        if fault := url_fault(url):
            problems.append(Problem(f"{self.path}.url", fault))
        problems += (
            Problem(f"{self.path}.headers.{name}", "belongs to the connection", "leave it out")
            for name in headers
            if name.lower() in DROPPED
        )
        auth, variables = self._auth(values.get("auth"))
        if isinstance(auth, list):
            problems += auth
        if problems or isinstance(auth, list):
            return problems
        headers = {name.lower(): text.strip() for name, text in headers.items()}
        headers = {**headers, **auth.headers}
        secret = (
            text for name, text in headers.items() if is_secret_name(name) or is_secret_header(name)
        )
        return McpSite(
            name=values.get("name") or without_query(url),
            url=with_query(url, auth.query),
            headers=headers,
            auth=auth,
            variables=variables,
            secrets=tuple(
                dict.fromkeys(
                    [
                        *auth.secrets,
                        *secret_parameters(parameters(url)),
                        *(part for text in secret for part in sorted(secret_parts(text))),
                    ]
                )
            ),
        )

    def _auth(
        self, given: Mapping[str, Any] | None
    ) -> tuple[Auth | list[Problem], tuple[str, ...]]:
        """Return the authentication, or its problems, and the variables in its templates."""
        if given is None or given.get("type") in _NO_AUTH:
            return NO_AUTH, ()
        variables = tuple(dict.fromkeys(_variables(given, self.context.environ)))
        if hidden := [name for name in variables if name in self.context.withheld]:
            message = f"an untrusted suite cannot read the environment variable {hidden[0]}"
            hint = f"allow it with --allow-env {hidden[0]}"
            return [Problem(f"{self.path}.auth", message, hint)], ()
        try:
            filled = self._filled(given)
        except TemplateError as error:
            return [Problem(f"{self.path}.auth", str(error))], ()
        if filled.get("type") == "api_key":
            key = filled.pop("api_key", None)
            filled = {"keyName": _DEFAULT_HEADER, **filled, "value": filled.get("value") or key}
        auth = read_auth(filled)
        if isinstance(auth, list):
            return [self._below(one) for one in auth], ()
        return auth, variables

    def _filled(self, value: Any) -> Any:
        """Return a value whose templates are filled in with the environment."""
        match value:
            case str() if MARK.search(value):
                environ, hidden = self.context.environ, self.context.withheld
                visible = {name: text for name, text in environ.items() if name not in hidden}
                return self.context.templates.render(value, visible)
            case Mapping():
                return {key: self._filled(part) for key, part in value.items()}
            case list() | tuple():
                return [self._filled(part) for part in value]
            case _:
                return value


def _variables(value: Any, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the environment variables that templates in a value name."""
    match value:
        case str() if MARK.search(value):
            yield from (name for name in _NAME.findall(value) if name in environ)
        case Mapping():
            for part in value.values():
                yield from _variables(part, environ)
        case list() | tuple():
            for part in value:
                yield from _variables(part, environ)


# The call of a tool that a prompt names.


@attrs.frozen
class ToolRequest:
    """The tool that a prompt names, and its arguments."""

    tool: str
    arguments: Mapping[str, Any]
    payload: Any
    """The prompt as JSON data."""


def read_tool_request(request: Request, name: str) -> ToolRequest:
    """Return the call in a prompt, or in the variable `prompt`, if the test has one.

    Args:
        request: The request.
        name: The provider's name in messages.

    Raises:
        ProviderError: `bad_request`: it is not JSON, names no tool, or its arguments are not an object.

    Example:
        >>> prompt = '{"tool": "add", "args": {"a": 2}}'
        >>> read_tool_request(Request(prompt=prompt), "mcp").arguments
        {'a': 2}
    """
    written = request.vars.get("prompt", request.prompt)
    payload: Any = written
    if isinstance(written, str):
        try:
            payload = json.loads(written)
        except (ValueError, RecursionError) as error:
            fault = f"the prompt must be JSON such as {_FORM}, got {show(written)}"
            raise ProviderError("bad_request", f"{name}: {fault}") from error
    fields = payload if isinstance(payload, Mapping) else {}
    tool = next((fields[key] for key in _TOOL_KEYS if fields.get(key)), None)
    if not isinstance(tool, str):
        fault = f"the prompt names no tool; write {_FORM}, got {show(payload)}"
        raise ProviderError("bad_request", f"{name}: {fault}")
    arguments: Any = next((fields[key] for key in _ARGUMENT_KEYS if fields.get(key)), {})
    if not isinstance(arguments, Mapping):
        fault = f"the arguments of {tool} must be an object, got {show(arguments)}"
        raise ProviderError("bad_request", f"{name}: {fault}")
    return ToolRequest(tool, arguments, payload)


@attrs.frozen
class McpProvider:
    """Calls the tools of servers."""

    settings: McpSettings
    _servers: "McpServers" = attrs.field(repr=False)

    async def __call__(self, request: Request, /) -> Reply:
        """Call one tool. A checkpoint, unless the request is invalid.

        A result that the tool itself marks as an error is a reply.

        Raises:
            ProviderError: See `read_tool_request` and `McpServers.call`.
        """
        wanted = read_tool_request(request, self.settings.id)
        limit = self._limit(request)
        result = await self._servers.call(wanted.tool, wanted.arguments, limit)
        return read_tool_result(result, wanted)

    def _limit(self, request: Request) -> float:
        """Return the maximum seconds of a call; of all keys, only this one may differ for one call."""
        names = {to_snake(key.name): key for key in KEYS}
        given = {key: value for key, value in request.options.items() if to_snake(key) in names}
        values, problems = read_config(given, KEYS)
        limit = values.pop("timeout_ms", None) or values.pop("timeout", None)
        fixed = [f'"{names[name].name}"' for name, value in values.items() if value is not None]
        if fixed:
            problems.append(Problem(".config", f"{', '.join(fixed)} cannot differ for one call"))
        if problems:
            raise ProviderError("bad_request", "; ".join(map(str, problems)))
        return float(limit) / 1000 if limit else self.settings.timeout


def read_tool_result(result: Mapping[str, Any], wanted: ToolRequest) -> Reply:
    r"""Return the reply for the result of a tool: its content as JSON text.

    Example:
        >>> wanted = ToolRequest("add", {}, {})
        >>> read_tool_result({"content": [{"type": "text", "text": "4"}]}, wanted).output
        '[{"type":"text","text":"4"}]'
    """
    metadata = {
        "toolName": wanted.tool,
        "toolArgs": dict(wanted.arguments),
        "originalPayload": wanted.payload,
    }
    if result.get("isError"):
        metadata["isError"] = True
    return Reply(
        output=content_of(result),
        raw=result,
        metadata=metadata,
    )


def content_of(result: Mapping[str, Any]) -> str:
    """Return the content of a tool's result as JSON text."""
    return json.dumps(result.get("content"), ensure_ascii=False, separators=(",", ":"))
