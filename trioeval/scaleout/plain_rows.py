"""Rows and calls as plain data, which is pickled and read in a third of the time of their objects.

An attribute that has its default is left out. So are the step and the provider of a row, which both sides
have, and the assertions of its verdicts, which are those of the step. A test that an extension has changed is
sent without its provider, whose config may contain a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeAlias, TypeVar

import attrs

from trioeval.evaluation.journal import CallKey, CallRecord
from trioeval.evaluation.row import Row
from trioeval.grading import Assertion, JudgeUsage, Verdict
from trioeval.grading.model import NOTHING_SPENT
from trioeval.providers import Reply
from trioeval.suite.expand import Step
from trioeval.suite.model import ProviderEntry
from trioeval.usage import Usage

FindStep: TypeAlias = Callable[[str | None, int], tuple[Step, ProviderEntry]]
"""Returns the step of a row and its provider, by the id of its task and its index."""

T = TypeVar("T")
_Values: TypeAlias = dict[str, Any]
_EMPTY: Any = attrs.Factory(dict)
"""The default of attributes that are mappings."""


class _Attributes(Generic[T]):
    """The attributes of a class of attrs.

    Args:
        kind: The class. Its objects can be created from their attributes.
        left_out: The names of attributes that are not part of the data.
    """

    def __init__(self, kind: type[T], left_out: frozenset[str] = frozenset()) -> None:
        fields = [one for one in attrs.fields(kind) if one.name not in left_out]  # type: ignore[arg-type]
        self._values: Callable[[T], tuple[Any, ...]] = attrgetter(*(one.name for one in fields))
        self._named = [
            (one.alias or one.name, one.default, one.default == _EMPTY) for one in fields
        ]

    def data(self, one: T) -> _Values:
        """Return the attributes of an object that do not have their defaults.

        Identity is tested, and not equality: a report distinguishes 1 and 1.0.
        """
        return {
            name: value
            for (name, default, is_mapping), value in zip(
                self._named, self._values(one), strict=True
            )
            if value is not default and (not is_mapping or value)
        }


_ROW = _Attributes(Row, frozenset({"step", "provider", "planned"}))
_CALL = _Attributes(CallRecord)
_REPLY = _Attributes(Reply)
_USAGE = _Attributes(Usage)
_JUDGES = _Attributes(JudgeUsage)
_VERDICT = _Attributes(Verdict)


@attrs.define
class PlainWriter:
    """Writes the rows and calls of one message to the coordinator, and each of their replies once."""

    replies: list[_Values] = attrs.field(factory=list)
    """The replies as data."""
    _places: dict[int, tuple[int, Reply]] = attrs.field(init=False, factory=dict)
    """The positions of replies by their identity, which they keep as long as they exist."""

    def row(self, row: Row) -> _Values:
        """Return the data of a row."""
        data = _ROW.data(row)
        assertions = row.step.test.assertions
        if row.planned is not None:
            data["changed"] = (attrs.evolve(row.step.test, provider=None), row.step.vars)
        if row.reply is not None:
            data["reply"] = self._place(row.reply)
        if row.verdict is not None:
            data["verdict"] = _verdict_data(row.verdict, assertions)
        if row.graded:
            data["graded"] = [_verdict_data(one, assertions) for one in row.graded]
        for name in ("spent", "lost"):
            if name in data:
                data[name] = _judges_data(data[name])
        return data

    def call(self, call: CallRecord) -> _Values:
        """Return the data of a call."""
        data = _CALL.data(call)
        data["key"] = attrs.astuple(call.key, recurse=False)
        if isinstance(call.answer, Reply):
            data["answer"] = self._place(call.answer)
        return data

    def _place(self, reply: Reply) -> int:
        found = self._places.get(id(reply))
        if found is None:
            found = self._places[id(reply)] = (len(self.replies), reply)
            data = _REPLY.data(reply)
            if "usage" in data:
                data["usage"] = _USAGE.data(reply.usage)
            self.replies.append(data)
        return found[0]


@attrs.define
class PlainReader:
    """Reads what a `PlainWriter` has written."""

    _replies: Sequence[Reply]
    _find: FindStep

    @classmethod
    def of(cls, replies: Sequence[_Values], find: FindStep) -> PlainReader:
        """Return the reader of a message.

        Args:
            replies: The replies of the writer; changed.
            find: Returns what is not sent with a row.
        """
        return cls([_reply(one) for one in replies], find)

    def row(self, data: _Values) -> Row:
        """Return a row; changes its data."""
        step, provider = self._find(data.get("task"), data["index"])
        planned = None
        if (changed := data.pop("changed", None)) is not None:
            planned, (test, variables) = step, changed
            test = attrs.evolve(test, provider=step.test.provider)
            step = attrs.evolve(step, test=test, vars=variables)
        assertions = step.test.assertions
        if (reply := data["reply"]) is not None:
            data["reply"] = self._replies[reply]
        if (verdict := data["verdict"]) is not None:
            data["verdict"] = _verdict(verdict, assertions)
        if "graded" in data:
            data["graded"] = tuple(_verdict(one, assertions) for one in data["graded"])
        for name in ("spent", "lost"):
            if name in data:
                data[name] = _judges(data[name])
        return Row(step=step, provider=provider, planned=planned, **data)

    def call(self, data: _Values) -> CallRecord:
        """Return a call; changes its data."""
        data["key"] = CallKey(*data["key"])
        if type(data["answer"]) is int:
            data["answer"] = self._replies[data["answer"]]
        return CallRecord(**data)


def _reply(data: _Values) -> Reply:
    if "usage" in data:
        data["usage"] = Usage(**data["usage"])
    return Reply(**data)


def _verdict_data(verdict: Verdict, assertions: Sequence[Assertion]) -> _Values:
    data = _VERDICT.data(verdict)
    if verdict.assertion is not None:
        data["assertion"] = _assertion_place(verdict.assertion, assertions)
    if verdict.parts:
        data["parts"] = [_verdict_data(one, assertions) for one in verdict.parts]
    if "spent" in data:
        data["spent"] = _judges_data(verdict.spent)
    return data


def _assertion_place(assertion: Assertion, assertions: Sequence[Assertion]) -> int | Assertion:
    """Return the position of an assertion of a step; one that a set or a judge has made is itself."""
    for place, one in enumerate(assertions):
        if one is assertion:
            return place
    return assertion


def _verdict(data: _Values, assertions: Sequence[Assertion]) -> Verdict:
    if type(place := data.get("assertion")) is int:
        data["assertion"] = assertions[place]
    if "parts" in data:
        data["parts"] = tuple(_verdict(one, assertions) for one in data["parts"])
    if "spent" in data:
        data["spent"] = _judges(data["spent"])
    return Verdict(**data)


def _judges_data(spent: JudgeUsage) -> _Values | None:
    """Return the data of a usage of judges; None without any."""
    if spent == NOTHING_SPENT:
        return None
    return {**_JUDGES.data(spent), "usage": _USAGE.data(spent.usage)}


def _judges(data: Mapping[str, Any] | None) -> JudgeUsage:
    if data is None:
        return NOTHING_SPENT
    return JudgeUsage(**{**data, "usage": Usage(**data["usage"])})
