"""What buttons of the live view ask of a run. Pure."""

import math
from collections.abc import Mapping
from typing import Any

import attrs

_DONE = {
    "pause": "lane paused: calls in flight go on",
    "resume": "lane resumed",
    "retune": "lane retuned",
    "stop": "stopping: rows under way may finish",
    "cancel": "cancelling what is under way",
}


@attrs.frozen(kw_only=True)
class Command:
    """What is asked of a run, as its live channel takes it."""

    do: str
    more: Mapping[str, Any]

    @property
    def done(self) -> str:
        """What is said once it was done."""
        return _DONE[self.do]

    def json(self) -> dict[str, Any]:
        """Ready for `Live.ask`."""
        return {"do": self.do, **self.more}


def read_command(form: Mapping[str, str]) -> Command:
    """What a form says.

    Args:
        form: `do`, and as far as it concerns it `lane`, `width`, `rpm` and `tpm`; what is blank stays.

    Raises:
        ValueError: It says nothing that could be done; the text says why.

    Example:
        >>> read_command({"do": "retune", "lane": "a", "width": "4", "rpm": ""}).json()
        {'do': 'retune', 'lane': 'a', 'width': 4}
    """
    do = form.get("do", "")
    if do not in _DONE:
        raise ValueError(f"do must be one of {', '.join(_DONE)}, got {do[:40]!r}")
    if do in {"stop", "cancel"}:
        return Command(do=do, more={})
    if "lane" not in form:
        raise ValueError("lane is missing: say which one")
    more: dict[str, Any] = {"lane": form["lane"]}
    if do == "retune":
        given = {name: form.get(name, "").strip() for name in ("width", "rpm", "tpm")}
        more |= {name: _number(name, text) for name, text in given.items() if text}
        if len(more) == 1:
            raise ValueError("say a width, rpm or tpm")
    return Command(do=do, more=more)


def _number(name: str, text: str) -> float:
    """A number as JSON can say it; whether it will do, the run knows."""
    try:
        number = int(text) if name == "width" else float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        what = "a whole number" if name == "width" else "a number"
        raise ValueError(f"{name} must be {what}, got {text[:40]!r}")
    return number
