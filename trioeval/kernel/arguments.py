"""Checks of arguments, for callers without a type checker: refused once, in words, before anything starts."""

import inspect
import math
from collections.abc import AsyncIterable, Iterable
from typing import Any, Final

import trio

from trioeval.errors import PlanError

_LONGEST = 60
"""Characters of a value in a message."""
_FIRST_INSTANT = 10_000.0
"""Trio's clock starts at a random number of seconds that is no less: an earlier instant never was."""
_LONG_AGO = 3600.0
"""Seconds. An earlier instant may have been on the clock of a test, which starts at 0; not so long ago."""
NOTHING: Final = object()
"""The result of a function that has returned nothing, not even None: it raised."""


def described(value: object) -> str:
    """Return a value for a message, with its type.

    Example:
        >>> described([1, 2]), described(sorted), described(LaneSpec)
        ('the list [1, 2]', 'the function sorted', 'the class LaneSpec')
    """
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if inspect.isroutine(value):
        return f"the function {value.__name__}"
    kind, shown = type(value).__name__, repr(value)
    if len(shown) <= _LONGEST:
        return f"the {kind} {shown}"
    return f"an {kind}" if kind[0] in "AEIOUaeiou" else f"a {kind}"


def check_async_function(name: str, function: Any, *, takes: str) -> None:
    """Raise if `function` cannot be an async function.

    Whether a plain function returns an awaitable is known only after its first call: see `not_awaitable`.

    Args:
        name: The name of the argument.
        function: Its value.
        takes: The arguments with which it will be called, for the message.

    Raises:
        PlanError: It is a coroutine, a generator function, or cannot be called. A coroutine is closed.
    """
    right = f"{name} must be an async function that takes ({takes})"
    if inspect.iscoroutine(function):
        called = function.__name__
        function.close()  # or Python warns that it was never awaited
        raise PlanError(f"{right}, got a coroutine: pass {called} instead of {called}(...)")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise PlanError(f"{right}, got the generator function {function.__name__}")
    if not callable(function):
        raise PlanError(f"{right}, got {described(function)}")


def check_plain_function(name: str, function: Any, *, takes: str) -> None:
    """Raise if `function` is not None and cannot be called synchronously.

    Raises:
        PlanError: It is an async function, whose result would not be awaited, or cannot be called.
    """
    if function is None:
        return
    right = f"{name} must be a plain function that takes ({takes})"
    if inspect.iscoroutinefunction(function):
        raise PlanError(f"{right}, got the async function {function.__name__}")
    if not callable(function):
        raise PlanError(f"{right}, got {described(function)}")


def not_awaitable(name: str, function: Any, result: object) -> PlanError | None:
    """Return the error of a function whose result cannot be awaited; None if it can.

    Args:
        name: The name of the argument.
        function: Its value.
        result: What it has returned, or `NOTHING`.
    """
    if result is NOTHING or inspect.isawaitable(result):
        return None
    got = described(function)
    return PlanError(
        f"{name} must be an async function, got {got}, which returned {described(result)}"
    )


def check_items(items: object) -> None:
    """Raise if `items` is not an iterable or an asynchronous iterable of items.

    Raises:
        PlanError: With what was given. A coroutine is closed.
    """
    if inspect.iscoroutine(items):
        items.close()  # or Python warns that it was never awaited
        raise PlanError(f"items must be an iterable, got a coroutine: await {items.__name__}(...)")
    if isinstance(items, str | bytes) or not isinstance(items, Iterable | AsyncIterable):
        raise PlanError(f"items must be an iterable of items, got {described(items)}")


def check_error_classes(name: str, value: object) -> tuple[type[Exception], ...]:
    """Return one subclass of Exception, or several, as a tuple.

    Raises:
        PlanError: The value is, or contains, something else.
    """
    classes = (
        tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    )
    for one in classes:
        if not (isinstance(one, type) and issubclass(one, Exception)):
            raise PlanError(f"{name} must be subclasses of Exception, got {described(one)}")
    return classes


def check_timeout(timeout: Any) -> None:
    """Raise if `timeout` is not a positive number of seconds.

    Raises:
        PlanError: With what was given.
    """
    if not isinstance(timeout, int | float) or not timeout > 0:
        raise PlanError(f"timeout must be more than 0 seconds, got {timeout!r}")


def check_deadline(deadline: Any) -> None:
    """Raise if `deadline` is not an instant on the Trio clock.

    Raises:
        PlanError: It is not a number, or is a duration: before the first instant of the clock.
    """
    right = "deadline must be an instant on the Trio clock"
    if not isinstance(deadline, int | float) or math.isnan(deadline):
        raise PlanError(f"{right}, got {deadline!r}")
    if 0 <= deadline < min(_FIRST_INSTANT, trio.current_time() - _LONG_AGO):
        hint = f"for {deadline:g} seconds from now write trio.current_time() + {deadline:g}"
        raise PlanError(f"{right}, got {deadline!r}, which is before its start; {hint}")
