"""Types that check the steps of an agent: its tools, their order, their arguments, their number."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from trioeval.grading.kind import Finding, Kind, Kinds, is_not_blank, is_text_or_texts
from trioeval.grading.kinds.traces import BoundedCount, ReplySpan, read_counted, trace_of
from trioeval.grading.kinds.trajectories import STEP_TYPES, TrajectoryStep, steps_of
from trioeval.grading.kinds.workspace_files import matches
from trioeval.grading.model import Assertion
from trioeval.grading.subject import FunctionCall, Subject
from trioeval.text import quote, same_json

_ANY = "*"
_MODES = ("in_order", "exact")
_HAS_IN_ORDER = {True: "has in this order", False: "does not have in this order"}
_FITS = ("partial", "exact")


@attrs.frozen
class _StepSelector:
    """The steps that are counted."""

    pattern: str = _ANY
    types: tuple[str, ...] = ("tool",)

    def has(self, step: TrajectoryStep) -> bool:
        return step.type in self.types and step.fits(self.pattern)


def _tool_used(subject: Subject, value: Any, assertion: Assertion) -> Finding:
    tools = _tools(subject)
    inverted = assertion.type.startswith("not-")
    if not isinstance(value, Mapping):
        expected = [value] if isinstance(value, str) else value
        there = [pattern for pattern in expected if any(step.fits(pattern) for step in tools)]
        # Every one of several tools is required, or forbidden under `not-`.
        holds = bool(there) if inverted else len(there) == len(expected)
        word = "unwanted" if inverted else "wanted"
        return Finding(holds, f"tools used: {_listed(tools)}; {word}: {quote(list(expected))}")
    found, counted = (
        _selector(value),
        BoundedCount(least=value.get("min", 1), most=value.get("max")),
    )
    count = sum(map(found.has, tools))
    return Finding(
        counted.allows(count),
        f"found {count} tool call{'s' * (count != 1)} matching {quote(found.pattern)}, "
        f"expected {counted.bounds}; tools used: {_listed(tools)}",
    )


def _tool_sequence(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    tools = _tools(subject)
    steps, mode = value, "in_order"
    if isinstance(value, Mapping):
        steps, mode = value["steps"], value.get("mode", mode)
    expected = [_selector(step) for step in steps]
    if mode == "exact":
        holds = len(expected) == len(tools) and all(
            one.has(step) for one, step in zip(expected, tools, strict=True)
        )
    else:
        rest = iter(tools)
        holds = all(any(one.has(step) for step in rest) for one in expected)
    patterns = quote([one.pattern for one in expected])
    how = ("is" if holds else "is not") if mode == "exact" else _HAS_IN_ORDER[holds]
    return Finding(holds, f"the sequence of tools {_listed(tools)} {how} {patterns}")


def _tool_args(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    found = _selector(value)
    ignored = value.get("ignore", ())
    ignored = (ignored,) if isinstance(ignored, str) else ignored
    expected = _without(value["args"] if "args" in value else value["arguments"], ignored)
    defaults = value.get("defaults") or {}
    exact = value.get("mode") == "exact"
    calls = [step for step in _tools(subject) if found.has(step)]
    for step in calls:
        if step.args is None:
            continue
        actual = _without_defaults(_without(step.args, ignored), defaults)
        if same_json(actual, expected) if exact else _covers(actual, expected):
            return Finding(
                holds=True, reason=f"{step} was called with {quote(step.args)}, as expected"
            )
    args = quote([step.args for step in calls])
    return Finding(
        holds=False,
        reason=f"no call that matches {quote(found.pattern)} has the arguments {quote(expected)}; "
        f"those of its {len(calls)} call{'s' * (len(calls) != 1)}: {args}",
    )


def _step_count(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    types, pattern = _types(value) or STEP_TYPES, value.get("pattern") or value.get("name") or _ANY
    selector = _StepSelector(pattern, tuple(types))
    counted = BoundedCount(least=value.get("min"), most=value.get("max"))
    count = sum(map(selector.has, steps_of(trace_of(subject))))
    of_types = "" if selector.types == STEP_TYPES else f" of type {' or '.join(selector.types)}"
    return Finding(
        counted.allows(count),
        f"found {count} step{'s' * (count != 1)}{of_types} matching {quote(pattern)}, "
        f"expected {counted.bounds}",
    )


def _tools(subject: Subject) -> list[TrajectoryStep]:
    """Return the tools that were used: by the trace, else as the reply requests them.

    Raises:
        GradingError: The reply has no trace, and its provider offers no tools.
    """
    if subject.metadata.get("trace") is None and (subject.calls or subject.tools):
        return [_requested(call) for call in subject.calls]
    return [step for step in steps_of(trace_of(subject)) if step.type == "tool"]


def _requested(call: FunctionCall) -> TrajectoryStep:
    return TrajectoryStep("tool", call.name, (call.name,), ReplySpan(call.name), call.arguments)


def _selector(value: Any) -> _StepSelector:
    if isinstance(value, str):
        return _StepSelector(value)
    return _StepSelector(value.get("pattern") or value["name"], _types(value) or ("tool",))


def _types(value: Mapping[str, Any]) -> tuple[str, ...]:
    types = value.get("type", ())
    return (types,) if isinstance(types, str) else tuple(types)


def _covers(actual: Any, expected: Any) -> bool:
    """Return whether everything expected is there: keys of objects, and lists element by element."""
    match expected:
        case Mapping():
            return isinstance(actual, Mapping) and all(
                key in actual and _covers(actual[key], part) for key, part in expected.items()
            )
        case list() | tuple():
            return (
                isinstance(actual, list | tuple)
                and len(actual) == len(expected)
                and all(map(_covers, actual, expected))
            )
        case _:
            return same_json(actual, expected)


def _without(args: Any, ignored: Iterable[str]) -> Any:
    """Return arguments without those with ignored names."""
    if not isinstance(args, Mapping):
        return args
    return {
        key: part
        for key, part in args.items()
        if not any(key == name or (_is_pattern(name) and matches(key, name)) for name in ignored)
    }


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name


def _without_defaults(args: Any, defaults: Mapping[str, Any]) -> Any:
    if not isinstance(args, Mapping):
        return args
    return {
        key: part
        for key, part in args.items()
        if key not in defaults or not same_json(part, defaults[key])
    }


def _listed(steps: Sequence[TrajectoryStep]) -> str:
    return quote([step.name for step in steps])


def _uses_tools(value: Any) -> bool:
    if isinstance(value, Mapping):
        counted = read_counted(value, others=frozenset({"type"}))
        return counted is not None and _is_step(value, "min", "max")
    return is_text_or_texts(value)


def _is_step(value: Any, *others: str) -> bool:
    """Return whether a value selects steps of a tool."""
    if not isinstance(value, Mapping):
        return is_not_blank(value)
    names = [value[key] for key in ("name", "pattern") if value.get(key) is not None]
    return (
        {"name", "pattern", "type", *others}.issuperset(value)
        and bool(names)
        and all(map(is_not_blank, names))
        and _are_types(value)
    )


def _are_types(value: Mapping[str, Any]) -> bool:
    types = value.get("type", ())
    types = [types] if isinstance(types, str) else types
    return isinstance(types, list | tuple) and all(one in STEP_TYPES for one in types)


def _is_sequence(value: Any) -> bool:
    steps = value
    if isinstance(value, Mapping):
        if not {"mode", "steps"}.issuperset(value) or value.get("mode", "exact") not in _MODES:
            return False
        steps = value.get("steps")
    return isinstance(steps, list | tuple) and bool(steps) and all(map(_is_step, steps))


def _matches_args(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    ignored = value.get("ignore", "*")
    return (
        _is_step(value, "args", "arguments", "mode", "defaults", "ignore")
        and ("args" in value or "arguments" in value)
        and value.get("mode", "exact") in _FITS
        and isinstance(value.get("defaults", {}), Mapping)
        and (ignored == [] or is_text_or_texts(ignored))
    )


def _counts_steps(value: Any) -> bool:
    counted = read_counted(value, others=frozenset({"type"}))
    return (
        counted is not None
        and not (counted.least is None and counted.most is None)
        and _are_types(value)
    )


_TYPES = ", ".join(STEP_TYPES)

KINDS: Kinds = {
    "trajectory:step-count": Kind(
        f'{{"type"?, "pattern"?, "min"?, "max"?}} with a bound; types are {_TYPES}',
        _counts_steps,
        _step_count,
    ),
    "trajectory:tool-args-match": Kind(
        '{"name" or "pattern", "args", "mode"? partial or exact, "defaults"?, "ignore"?}',
        _matches_args,
        _tool_args,
    ),
    "trajectory:tool-sequence": Kind(
        'a list of tools, or {"steps": a list of tools, "mode"? in_order or exact}',
        _is_sequence,
        _tool_sequence,
    ),
    "trajectory:tool-used": Kind(
        'the name of a tool, a list of names, or {"name" or "pattern", "min"?, "max"?}',
        _uses_tools,
        _tool_used,
    ),
}
