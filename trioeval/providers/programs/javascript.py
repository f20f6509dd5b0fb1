"""`file://<file>.js` or `.ts`: a provider of the user's in JavaScript, in worker processes of Node.

It is the default export of the file, or the export `name` of `file://<file>.js:<name>`: a class, which gets
the options `{"id", "config"}` and whose method `callApi` gets the prompt and the context `{"vars", …}`; or a
function of the prompt, the context and the options. Either returns an object with `output` or `error`, or
text. A class is created once in each process, so it may keep state between calls; there is one process,
unless `workers` asks for more.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs

from trioeval.errors import Problem
from trioeval.paths import Refused
from trioeval.providers.base import Reply, Request
from trioeval.providers.bounds import MAX_RESPONSE, MOST_BYTES
from trioeval.providers.config import (
    EntryContext,
    Key,
    ProviderResources,
    ProviderSettings,
    is_integer,
    show,
)
from trioeval.providers.metering import Metering
from trioeval.providers.programs.entries import (
    DEFAULT_TIMEOUT,
    TIMEOUT,
    absolute,
    find_secrets,
    make_context,
    read_call,
    read_own_config,
)
from trioeval.providers.programs.exec import DEFAULT_FUNCTION, read_result
from trioeval.providers.programs.workers import Workers, WorkerSpec, open_workers
from trioeval.scripting import MOST_WORKERS, SCRIPTS, split_function
from trioeval.scripting.node import export_fault, node_fault

KEYS = (
    TIMEOUT,
    MAX_RESPONSE,
    Key(
        "workers",
        f"a whole number from 1 to {MOST_WORKERS}",
        lambda value: is_integer(value) and 1 <= value <= MOST_WORKERS,
    ),
)


@attrs.frozen(kw_only=True)
class JavaScriptSettings(ProviderSettings):
    """A file of JavaScript or TypeScript, and the settings for running it."""

    id: str
    """The id in the suite."""
    workers: WorkerSpec
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    own: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """Config of the user's, which only the file reads."""
    known: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """The rest of the config, which the file gets as well."""
    timeout: float = DEFAULT_TIMEOUT
    """Maximum seconds of a call, > 0."""

    @property
    def own_name(self) -> str:
        """The id."""
        return self.id

    @property
    def lane_key(self) -> str:
        """One lane for each file."""
        return self.id

    @property
    def metering(self) -> Metering:
        """The metering of a program, whose reported costs have no limit."""
        return Metering(says_cost=True)

    @asynccontextmanager
    async def open(self, _shared: ProviderResources) -> AsyncGenerator["JavaScriptProvider"]:
        """Open the provider with its workers."""
        async with open_workers(self.workers) as workers:
            yield JavaScriptProvider(self, workers)


def read(
    prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> JavaScriptSettings | list[Problem]:
    """Read an entry; see `Reader`. Checks that Node can run the file, and runs nothing of it."""
    values, own, problems = read_own_config(config, KEYS)
    named, member = split_function(rest.strip())
    file = absolute(context.directory, named)
    place = context.place(named)
    if isinstance(place, Refused):
        problems.append(Problem(".id", place.message, place.hint))
    elif file.suffix.lower() not in SCRIPTS:
        hint = f"write {prefix}:<file.js>"
        problems.append(Problem(".id", f"{show(named)} is not a JavaScript file", hint))
    elif not file.is_file():
        problems.append(Problem(".id", f'file "{file}" not found'))
    elif fault := node_fault("is a provider", context.environ, file) or export_fault(file, member):
        problems.append(Problem(".id", f'"{file}" {fault}'))
    if problems:
        return problems
    workers = WorkerSpec.in_node(
        named,
        file,
        f"provider:{member or ''}",
        absolute(context.directory, ""),
        context.environ,
        workers=values.get("workers", 1),
        largest=values.get("max_response_bytes", MOST_BYTES),
        size_key=MAX_RESPONSE.name,
    )
    return JavaScriptSettings(
        id=f"file://{rest.strip()}",
        workers=workers,
        secrets=find_secrets(own, context.environ),
        own=own,
        known={key: value for key, value in config.items() if key not in own},
        timeout=values["timeout_ms"] / 1000 if "timeout_ms" in values else DEFAULT_TIMEOUT,
    )


@attrs.frozen
class JavaScriptProvider:
    """Calls the class or the function, and reads its result."""

    settings: JavaScriptSettings
    _workers: Workers = attrs.field(repr=False)

    async def __call__(self, request: Request, /) -> Reply:
        """Send one request.

        Raises:
            ProviderError: See `Workers.call` and `read_result`; or `bad_request`, if the variables are not
                JSON.
        """
        settings = self.settings
        timeout, own = read_call(settings.own, KEYS, request)
        options = {"id": settings.id, "config": {**settings.known, **own}}
        limit = settings.timeout if timeout is None else timeout
        arguments = [request.prompt, make_context(request), options]
        value = await self._workers.call(arguments, limit)
        return read_result(value, DEFAULT_FUNCTION, name=settings.workers.name)
