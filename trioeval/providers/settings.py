"""What stands between an entry of a suite and an open provider: the seam that every family fills.

A family is a module with a function `read` (a `Reader`), which checks an entry and gives its `Settings`:
plain data, nothing open. Settings know their lane and their secrets, and open the provider.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import attrs

from trioeval.errors import Problem
from trioeval.fence import Fence, Refused
from trioeval.providers.base import Provider
from trioeval.providers.config import show
from trioeval.providers.wire import HttpClient, TlsSettings


class Templates(Protocol):
    """Fills variables into texts."""

    def render(self, text: str, variables: Mapping[str, Any], /) -> str:
        """The text with its variables filled in.

        Raises:
            TemplateError: It cannot be rendered.
        """
        ...

    def syntax_error(self, text: str, /) -> str | None:
        """What is wrong with a text as a template; None if nothing is."""
        ...


@attrs.frozen(kw_only=True)
class Surroundings:
    """What an entry is read against."""

    environ: Mapping[str, str] = attrs.field(repr=False)
    """Where keys and base URLs are looked for."""
    directory: Path
    """What relative paths are relative to."""
    templates: Templates = attrs.field(repr=False)
    withheld: frozenset[str] = frozenset()
    """Variables of `environ` that no template may name."""
    runs_code: bool = True
    """Whether reading an entry may run its code; otherwise that is only looked at."""
    fence: Fence = attrs.field()
    """Decides which files the entry may name; those of `directory` if nothing else is given."""

    @fence.default
    def _own_folder(self) -> Fence:
        return Fence((self.directory,))

    def place(self, named: str) -> Path | Refused:
        """The path that an entry names, with its links followed, or why it may not be opened."""
        return self.fence.admit(self.directory / named, show(named))


class Shared(Protocol):
    """What the providers of one run share, alive as long as they are open."""

    @property
    def templates(self) -> Templates:
        """For providers whose config holds templates."""
        ...

    @property
    def runs_code(self) -> bool:
        """Whether code that a call brings along may run."""
        ...

    async def http(self, tls: TlsSettings | None = None) -> HttpClient:
        """The client for connections with these TLS settings, opened when it is first asked for."""
        ...


class Settings(Protocol):
    """An entry that is known to be right; nothing is open yet."""

    @property
    def lane_key(self) -> str:
        """Settings with equal keys share one rate-limit scope, and so one lane. Holds no secret."""
        ...

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that nothing that is written may contain."""
        ...

    def open(self, shared: Shared, /) -> AbstractAsyncContextManager[Provider]:
        """A provider of its own, which is closed with everything it opened."""
        ...


@runtime_checkable
class AsksUrls(Protocol):
    """Settings of a provider whose URLs stand in the suite."""

    @property
    def urls(self) -> tuple[str, ...]:
        """All of them; each may be a template."""
        ...

    @property
    def named_variables(self) -> tuple[str, ...]:
        """Environment variables that its id names."""
        ...

    @property
    def code_keys(self) -> tuple[str, ...]:
        """Keys of its config that hold code."""
        ...


@runtime_checkable
class ChoosesCredentials(Protocol):
    """Settings of a provider whose config may choose among the credentials on the user's machine."""

    @property
    def credential_choices(self) -> Mapping[str, str]:
        """Keys of its config that do, each with the variable by which the user makes the same choice."""
        ...


Reader: TypeAlias = Callable[[str, str, Mapping[str, Any], Surroundings], Settings | list[Problem]]
"""`read(prefix, rest, config, around)`: for the id `exec:date -u` the prefix is `exec`, the rest
`date -u`. Returns everything that is wrong, with paths relative to the entry: `.id`, `.config.seed`."""
