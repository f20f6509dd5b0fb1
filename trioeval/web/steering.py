"""What a run lets be seen and changed of it while it goes on."""

from collections.abc import Callable, Mapping
from reprlib import Repr
from typing import Any

import attrs

from trioeval.errors import PlanError
from trioeval.kernel import Lane, Lanes
from trioeval.report.run_state import RunState

_WIDEST = 10_000  # calls in flight; more is a slip of the hand
_RATES = (0.001, 1e9)  # a minute
_COMMANDS: Mapping[str, frozenset[str]] = {
    "pause": frozenset({"lane"}),
    "resume": frozenset({"lane"}),
    "retune": frozenset({"lane", "width", "rpm", "tpm"}),
    "stop": frozenset(),
    "cancel": frozenset(),
}
"""What each may say besides."""
_SHOWN = 80  # characters of what is refused


@attrs.frozen(kw_only=True, eq=False)
class Steering:
    """The wheel of one run. Everything is synchronous and happens at once, in the run's Trio thread."""

    run_id: str
    state: Callable[[], RunState]
    """How the run stands now. Its lanes are those that can be steered."""
    lanes: Lanes
    stop: Callable[[int | None], None]
    """Start no more rows; those under way finish. As the first Ctrl-C. It is given the number of the process
    that asks, or None."""
    cancel: Callable[[int | None], None]
    """End what is under way. As the second one."""

    def obey(self, command: Mapping[str, Any], process: int | None = None) -> str | None:
        """Do what a command says, all of it or nothing; synchronous, in the run's Trio thread.

        Args:
            command: As `trioeval.web.live_client.Live.ask` has it; nothing of it is trusted.
            process: Who has sent it; None if that is not known.

        Returns:
            Why it is refused; None if it was done.
        """
        do = command.get("do")
        if not isinstance(do, str) or do not in _COMMANDS:
            return f"do must be one of {', '.join(_COMMANDS)}, got {_cut(do)}"
        if unknown := sorted(set(command) - _COMMANDS[do] - {"do"}):
            return f"{do} takes no {_cut(unknown[0])}"
        if do == "stop":
            self.stop(process)
            return None
        if do == "cancel":
            self.cancel(process)
            return None
        lane = self._lane(command.get("lane"))
        if isinstance(lane, str):
            return lane
        match do:
            case "pause":
                lane.pause()
            case "resume":
                lane.resume()
            case _:
                return _retune(lane, command)
        return None

    def _lane(self, name: object) -> Lane | str:
        """A lane, or why there is none of that name."""
        known = [lane.name for lane in self.state().lanes]
        if not isinstance(name, str) or name not in known:
            return f"there is no lane {_cut(name)}; the lanes are {', '.join(map(_cut, known))}"
        return self.lanes[name]


def _retune(lane: Lane, command: Mapping[str, Any]) -> str | None:
    width, rpm, tpm = (command.get(key) for key in ("width", "rpm", "tpm"))
    problems = [] if width is None else _check_width(width)
    problems += [] if rpm is None else _check_rate("rpm", rpm)
    problems += [] if tpm is None else _check_rate("tpm", tpm)
    if problems:
        return "; ".join(problems)
    if width is rpm is tpm is None:
        return "retune needs a width, rpm or tpm"
    try:
        # What it may refuse comes first: then nothing of it was done.
        lane.retune(rpm=rpm, tpm=tpm)
    except PlanError as error:
        return str(error)
    if width is not None:
        lane.width = width
    return None


def _check_width(width: object) -> list[str]:
    if type(width) is int and 1 <= width <= _WIDEST:
        return []
    return [f"width must be a whole number from 1 to {_WIDEST}, got {_cut(width)}"]


def _check_rate(name: str, rate: object) -> list[str]:
    least, most = _RATES
    if type(rate) in (int, float) and isinstance(rate, int | float) and least <= rate <= most:
        return []
    return [f"{name} must be a number from {least:g} to {most:g}, got {_cut(rate)}"]


def _cut(value: object) -> str:
    """What somebody else has sent, short enough to be told."""
    short = Repr()
    short.maxstring = short.maxother = short.maxlong = _SHOWN
    return short.repr(value)
