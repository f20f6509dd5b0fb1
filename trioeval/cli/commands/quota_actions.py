# Apart from `cli.commands.quota`: loaded when it is used.
"""`trioeval quota show` and `set`: how shared limits stand, and what is said of them."""

import json
import sys
from collections.abc import Sequence

import attrs

from trioeval.cli.commands.quota_target import Place, ask_place
from trioeval.cli.commands.quota_view import chosen, limit_line, limit_record, limits_table
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.terminal import Exit, draw, say, show
from trioeval.errors import SuiteError, UsageError
from trioeval.limits.backend import Backend
from trioeval.limits.file import filed_states
from trioeval.limits.json import DEFINITION, from_json, limit_data
from trioeval.limits.model import Limit, LimitState

_FLAG_BY_NAME = {key: f"--{field.name}" for key, field in DEFINITION.items() if key != "key"}


@attrs.frozen(kw_only=True)
class Change:
    """What is to be said of a limit; None leaves it as it is."""

    key: str
    kind: str | None = None
    capacity: int | None = None
    window: float | None = None
    timeout: float | None = None
    reset: float | None = None
    overage: str | None = None
    unit: str | None = None
    description: str | None = None

    def of(self, known: Limit | None) -> Limit:
        """The definition that it makes of the one that there is.

        Raises:
            UsageError: It makes none, with everything that is wrong with it.

        Example:
            >>> known = Limit(key="slots", kind="concurrency", capacity=8, timeout=30)
            >>> Change(key="slots", capacity=2).of(known) == attrs.evolve(known, capacity=2)
            True
        """
        said = {key: getattr(self, field.name) for key, field in DEFINITION.items()}
        given = {name: value for name, value in said.items() if value is not None}
        try:
            return from_json((limit_data(known) if known else {}) | given, Limit)
        except SuiteError as error:
            told = [
                f"{_FLAG_BY_NAME.get(one.path.removeprefix('$.'), 'KEY')}: {one.message}"
                + (f"\n  {one.hint}" if one.hint else "")
                for one in error.problems
            ]
            raise UsageError("\n".join(told)) from None

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing."""
        return self == Change(key=self.key)


def show_limits(
    place: Place, keys: tuple[str, ...], interrupts: Interrupts, *, as_json: bool
) -> int:
    """Show limits and how they stand.

    Raises:
        UsageError: There is no such limit.
        QuotaError: Whoever keeps them refuses to tell.
        SuiteError: The file of them cannot be read.
    """
    states = _states(place, interrupts)
    if states is None:
        return interrupts.code
    found = chosen(states, keys)
    if as_json:
        show(json.dumps([limit_record(state) for state in found], indent=2, ensure_ascii=False))
    elif found:
        draw(limits_table(found), sys.stdout)
    else:
        say("no limits")
    return Exit.OK


def _states(place: Place, interrupts: Interrupts) -> Sequence[LimitState] | None:
    if place.file is not None:
        return filed_states(place.file)
    return ask_place(place, lambda backend: backend.states(), interrupts)


def remove_limit(place: Place, key: str, interrupts: Interrupts) -> int:
    """Forget a limit.

    Raises:
        QuotaError: There is none, or whoever keeps it refuses.
        SuiteError: The file of limits cannot be read.
        OutputError: It cannot be written.
    """

    async def carry_out(backend: Backend) -> str:
        await backend.remove(key)
        return f"{key} is removed"

    said = ask_place(place, carry_out, interrupts)
    if said is None:
        return interrupts.code
    say(said)
    return Exit.OK


def change_limit(place: Place, change: Change, pause: float | None, interrupts: Interrupts) -> int:
    """Make a limit, change what is said of it, or close it for some seconds.

    Raises:
        UsageError: It says nothing, or makes no limit; or a file is to be paused.
        QuotaError: Whoever keeps it refuses.
        SuiteError: The file of limits cannot be read.
        OutputError: It cannot be written.
    """
    if change.is_empty and pause is None:
        flags = ", ".join([*_FLAG_BY_NAME.values(), "--pause"])
        raise UsageError(f"say what is to change, with one of {flags}")
    if place.file is not None and pause is not None:
        raise UsageError(
            "--pause needs --url: a file of limits grants nothing, and so pauses nothing"
        )

    async def carry_out(backend: Backend) -> LimitState:
        known = {state.limit.key: state for state in await backend.states()}.get(change.key)
        state = known
        if not change.is_empty:
            state = await backend.define(change.of(known.limit if known else None))
        if pause is not None:
            state = await backend.pause(change.key, pause)
        assert state is not None  # noqa: S101 - one of both was to be done
        return state

    state = ask_place(place, carry_out, interrupts)
    if state is None:
        return interrupts.code
    say(limit_line(state))
    return Exit.OK
