"""The provider that replies from a file of recordings, without a network.

The file is described in `trioeval.providers.local.recordings`. Config keys:

* `model`: use only recordings of this model (and those without a model).
* `provider`: use only recordings of this entry of a suite (and those without an entry).
* `maxResponseBytes`: maximum size of a recorded reply.
* `latency`: `none` (default) replies at once, `real` after the recorded time, a number after that
  many times the recorded time.
"""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.errors import Fault, Problem, ProviderError, SuiteError
from trioeval.paths import Refused
from trioeval.providers.base import Reply, Request
from trioeval.providers.bounds import MAX_RESPONSE, MOST_BYTES, excess
from trioeval.providers.config import (
    EntryContext,
    Key,
    ProviderResources,
    ProviderSettings,
    is_number,
    is_text,
    read_config,
    show,
)
from trioeval.providers.local.recordings import (
    Recording,
    RecordingFile,
    RecordingRequest,
    Tape,
    parse_file,
)
from trioeval.providers.metering import Metering
from trioeval.providers.secrets import BLANK


def _is_latency(value: Any) -> bool:
    return value in ("real", "none") or (is_number(value) and value >= 0)


KEYS = (
    Key("model", "text", is_text),
    Key("provider", "text", is_text),
    MAX_RESPONSE,
    Key("latency", '"real", "none" or a factor of at least 0', _is_latency),
)


@attrs.frozen(kw_only=True)
class ReplaySettings(ProviderSettings):
    """The recordings to replay, and the speed."""

    file: str
    """The file's name in the suite."""
    recordings: tuple[Recording, ...] = attrs.field(repr=False)
    """All recordings of the file."""
    is_cut: bool = False
    """True if the last line of the file is incomplete, and was skipped."""
    model: str | None = None
    provider: str | None = None
    entry_idx: int | None = None
    """Index of its entry in the recorded suite; None if unknown."""
    speed: float = 0.0
    """Factor of the recorded latency, ≥ 0."""
    most_bytes: int = MOST_BYTES
    """Maximum bytes of JSON of a recorded reply."""
    _hidden: tuple[str, ...] = attrs.field(init=False, repr=False)

    @_hidden.default
    def _find_hidden(self) -> tuple[str, ...]:
        names = {take.provider for take in self.recordings}
        return tuple(sorted({text for name in names for text in _hidden_in(name, self.provider)}))

    @property
    def ignores_variables(self) -> bool:
        """True: it reads only the prompt."""
        return True

    @property
    def lane_key(self) -> str:
        """One lane for each file, provider and model."""
        chosen = (part for part in (self.provider, self.model) if part is not None)
        return " ".join((f"replay:{self.file}", *chosen))

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that were hidden in its recorded name; no other secrets are known here."""
        return self._hidden

    @property
    def metering(self) -> Metering:
        """The metering, with the cost of the most expensive recording as maximum."""
        most = max((take.cost or 0.0 for take in self.recordings), default=0.0)
        return Metering(says_cost=True, most_cost=most)

    @asynccontextmanager
    async def open(self, _shared: ProviderResources) -> AsyncGenerator["ReplayProvider"]:
        """Open a player at the first recordings."""
        yield ReplayProvider(self)


def read(
    _prefix: str, file: str, config: Mapping[str, Any], context: EntryContext
) -> ReplaySettings | list[Problem]:
    """Read the config and the whole file of recordings; see `Reader`."""
    values, problems = read_config(config, KEYS)
    found = RecordingFile(recordings=())
    if not file.strip():
        problems.append(Problem(".id", '"replay:" has no file', "write replay:<file.jsonl>"))
    elif isinstance(path := context.place(file), Refused):
        problems.append(Problem(".id", path.message, path.hint))
    else:
        found = _read_file(path, file)
        problems += found.problems
    if problems:
        return problems
    speed = {"none": 0.0, "real": 1.0, None: 0.0}.get(values.get("latency"))
    return ReplaySettings(
        file=file,
        recordings=found.recordings,
        is_cut=found.is_cut,
        model=values.get("model"),
        provider=values.get("provider"),
        speed=float(values["latency"]) if speed is None else speed,
        most_bytes=values.get("max_response_bytes", MOST_BYTES),
    )


def read_for_all(file: Path, names: Sequence[str]) -> tuple[ReplaySettings, ...]:
    """Return settings for all entries of a suite, which share a file that is read once.

    Args:
        file: The path of the recordings.
        names: Label or id of each entry, in order.

    Raises:
        SuiteError: All problems of the file.
    """
    found = _read_file(file, str(file))
    if found.problems:
        raise SuiteError(
            attrs.evolve(problem, path="$", file=problem.file or str(file))
            for problem in found.problems
        )
    return tuple(
        ReplaySettings(
            file=str(file),
            recordings=found.recordings,
            is_cut=found.is_cut,
            provider=name,
            entry_idx=position,
        )
        for position, name in enumerate(names)
    )


def _read_file(path: Path, name: str) -> RecordingFile:
    """Return the content of a file, called `name` in messages."""
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        problem = Problem(".id", f'cannot read the recordings "{name}": {reason}')
        return RecordingFile(recordings=(), problems=(problem,))
    return parse_file(content, name)


@attrs.frozen
class ReplayProvider:
    """Replays the recordings of each prompt in order, starting with the first one."""

    settings: ReplaySettings
    _tape: Tape = attrs.field(init=False, repr=False)

    @_tape.default
    def _new_tape(self) -> Tape:
        recordings, name = self.settings.recordings, self.settings.provider
        if name is None:
            return Tape(recordings)
        own = {one for one in {take.provider for take in recordings} if _is_called(one, name)}
        return Tape(tuple(take for take in recordings if take.provider in own))

    async def __call__(self, request: Request, /) -> Reply:
        """Return the next recorded reply. Always a checkpoint.

        Raises:
            ProviderError: A recorded error, `replay_miss` for a prompt that was not recorded, or whose
                output was not, or `malformed_reply` for a recording that is too large.
        """
        settings = self.settings
        query = RecordingRequest(
            request.prompt,
            settings.model,
            entry_idx=settings.entry_idx,
            test_idx=request.test_idx,
            prompt_idx=request.prompt_idx,
            repeat=request.repeat_index,
        )
        take = self._tape.find(query)
        self._tape.advance(query)
        latency = 0.0 if take is None or take.latency_ms is None else take.latency_ms / 1000
        await trio.sleep(latency * settings.speed)
        if take is None:
            raise ProviderError("replay_miss", self._miss(request.prompt))
        for values in take.unlimited_values:
            if (more := excess(values, settings.most_bytes)) is None:
                continue
            place = f"{settings.file}:{take.line}"
            message = f"the recorded reply has {more}, the maximum that {MAX_RESPONSE.name} allows"
            raise ProviderError("malformed_reply", f"{place}: {message}", fault=Fault.REFUSED)
        if (failure := take.failure()) is not None:
            raise failure
        if "output" in take.left_out:
            place = f"{settings.file}:{take.line}"
            reason = take.left_out["output"]
            raise ProviderError("replay_miss", f"{place}: the output was not recorded: {reason}")
        return take.reply()

    def _miss(self, prompt: str) -> str:
        settings = self.settings
        of = "" if settings.provider is None else f" of provider {settings.provider}"
        chosen = "" if settings.model is None else f" for model {settings.model}"
        cut = ", and an incomplete last line" if settings.is_cut else ""
        known = f"{settings.file} ({len(settings.recordings)} recorded{cut})"
        return f"no recording{of}{chosen} of the prompt {show(prompt)} in {known}"


def _is_called(recorded: str | None, name: str) -> bool:
    """Return whether a recorded name equals this one; any text matches a hidden secret."""
    return recorded in (None, name) or _match(recorded, name) is not None


def _hidden_in(recorded: str | None, name: str | None) -> tuple[str, ...]:
    """Return the texts in a name where its recording hides a secret; none if it is another name.

    Example:
        >>> _hidden_in("http://a/?key=[hidden]", "http://a/?key=sk-1234")
        ('sk-1234',)
    """
    found = _match(recorded, name)
    return () if found is None else tuple(text for text in found.groups() if text != BLANK)


def _match(recorded: str | None, name: str | None) -> re.Match[str] | None:
    if recorded is None or name is None or BLANK not in recorded:
        return None
    return re.fullmatch("(.+)".join(map(re.escape, recorded.split(BLANK))), name, re.DOTALL)
