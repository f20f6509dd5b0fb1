"""The provider that answers from a file of recorded replies, without a network.

The file is described in `trioeval.providers.local.recordings`. Config keys:

* `model`: use only recordings of this model (and those that name none).
* `provider`: use only recordings of this entry of the suite (and those that name none).
* `latency`: `none` (default) answers at once, `real` after the recorded time, a number after that
  many times the recorded time.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.errors import Problem, ProviderError
from trioeval.providers.base import Reply, Request
from trioeval.providers.config import Key, is_number, is_text, read_config, show
from trioeval.providers.local.recordings import Recording, parse_recordings
from trioeval.providers.local.tape import Tape, Wanted
from trioeval.providers.settings import Shared, Surroundings


def _is_latency(value: Any) -> bool:
    return value in ("real", "none") or (is_number(value) and value >= 0)


KEYS = (
    Key("model", "text", is_text),
    Key("provider", "text", is_text),
    Key("latency", '"real", "none" or a factor of at least 0', _is_latency),
)


@attrs.frozen
class ReplaySettings:
    """What is replayed, and how fast."""

    file: str
    """As the suite names it."""
    recordings: tuple[Recording, ...] = attrs.field(repr=False)
    model: str | None = None
    provider: str | None = None
    speed: float = 0.0
    """The recorded latency is multiplied by this, ≥ 0."""

    @property
    def lane_key(self) -> str:
        """One lane for each file, provider and model."""
        chosen = (part for part in (self.provider, self.model) if part is not None)
        return " ".join((f"replay:{self.file}", *chosen))

    @property
    def secrets(self) -> tuple[str, ...]:
        """None: recordings are written without them."""
        return ()

    @asynccontextmanager
    async def open(self, _shared: Shared) -> AsyncGenerator["ReplayProvider"]:
        """A player that starts from the first recordings."""
        yield ReplayProvider(self)


def read(
    _prefix: str, file: str, config: Mapping[str, Any], around: Surroundings
) -> ReplaySettings | list[Problem]:
    """Read the config and the whole file of recordings; see `Reader`."""
    values, problems = read_config(config, KEYS)
    recordings: tuple[Recording, ...] = ()
    if not file.strip():
        problems.append(Problem(".id", '"replay:" names no file', "write replay:<file.jsonl>"))
    else:
        recordings, faults = read_recordings(around.directory / file, file)
        problems += faults
    if problems:
        return problems
    speed = {"none": 0.0, "real": 1.0, None: 0.0}.get(values.get("latency"))
    return ReplaySettings(
        file=file,
        recordings=recordings,
        model=values.get("model"),
        provider=values.get("provider"),
        speed=float(values["latency"]) if speed is None else speed,
    )


def read_recordings(path: Path, name: str) -> tuple[tuple[Recording, ...], tuple[Problem, ...]]:
    """The recordings of a file, called `name` in messages, and what is wrong with it."""
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return (), (Problem(".id", f'cannot read the recordings "{name}": {reason}'),)
    return parse_recordings(content.split(b"\n"), name)


@attrs.frozen
class ReplayProvider:
    """Plays the recordings of each prompt in order, from the first one when it is made."""

    settings: ReplaySettings
    _tape: Tape = attrs.field(init=False, repr=False)

    @_tape.default
    def _new_tape(self) -> Tape:
        return Tape(self.settings.recordings)

    async def __call__(self, request: Request, /) -> Reply:
        """Answer one request. Always a checkpoint.

        Raises:
            ProviderError: A recorded error, or `replay_miss` for a prompt that was not recorded.
        """
        settings = self.settings
        wanted = Wanted(request.prompt, settings.model, settings.provider, request.repeat_index)
        take = self._tape.find(wanted)
        self._tape.advance(wanted)
        latency = 0.0 if take is None or take.latency_ms is None else take.latency_ms / 1000
        await trio.sleep(latency * settings.speed)
        if take is None:
            raise ProviderError("replay_miss", self._miss(request.prompt))
        if take.error is not None:
            raise take.error.revived()
        return take.reply()

    def _miss(self, prompt: str) -> str:
        settings = self.settings
        of = "" if settings.provider is None else f" of provider {settings.provider}"
        chosen = "" if settings.model is None else f" for model {settings.model}"
        known = f"{settings.file} ({len(settings.recordings)} recorded)"
        return f"no recording{of}{chosen} of the prompt {show(prompt)} in {known}"
