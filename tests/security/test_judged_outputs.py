"""Outputs that are made to delay graders, and with them all other lanes."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from pace import slowness

from trioeval.errors import GradingError
from trioeval.grading import Assertion, Subject
from trioeval.grading.grade import find, make_ready
from trioeval.grading.kind import LONGEST_SEARCHED, SlowError
from trioeval.grading.registry import KINDS
from trioeval.providers.bounds import MOST_BYTES

pytestmark = [pytest.mark.attack("judging"), pytest.mark.slow]

GAP = 0.3
"""Seconds that the process may compute between two steps of another lane, on a machine that is not slow."""

MARKUP = ("is-xml", "contains-xml", "is-html", "contains-html")
WORDS = ("rouge-n", "bleu", "gleu", "meteor")
VALUES: dict[str, Any] = {
    "contains-xml": "z.y",
    "is-sql": {"databaseType": "MySQL"},
    "contains-sql": {"databaseType": "BigQuery"},
    **dict.fromkeys(WORDS, "the cat is on the mat"),
}


@attrs.frozen
class Hostile:
    """An output of a model."""

    kinds: tuple[str, ...]
    text: Callable[[int], str]
    """The text of a given length."""


def filled(piece: str, begin: str = "", end: str = "") -> Callable[[int], str]:
    return lambda size: begin + piece * ((size - len(begin + end)) // len(piece)) + end


def numbered(piece: str, begin: str = "", end: str = "") -> Callable[[int], str]:
    each = len(piece.format(10**6))
    return lambda size: (
        begin + "".join(piece.format(10**6 + place) for place in range(size // each)) + end
    )


def nested(opening: str, closing: str, inside: str = "") -> Callable[[int], str]:
    def text(size: int) -> str:
        levels = size // len(opening + closing)
        return opening * levels + inside + closing * levels

    return text


OUTPUTS = {
    "deep": Hostile(MARKUP, nested("<a>", "</a>", "x")),
    "never closed": Hostile(MARKUP, filled("<a>")),
    "openings": Hostile(MARKUP, filled("<")),
    "unfinished tags": Hostile(MARKUP, filled("<a ")),
    "unfinished quotes": Hostile(MARKUP, filled("<a b=\"'")),
    "unfinished comments": Hostile(MARKUP, filled("<!-- - ")),
    "unfinished declarations": Hostile(MARKUP, filled("<!x [")),
    "comments": Hostile(MARKUP, filled("<!---->", "<a>", "</a>")),
    "sections": Hostile(MARKUP, filled("<![CDATA[x]]>", "<a>", "</a>")),
    "one tag of attributes": Hostile(MARKUP, numbered("b{}='1' ", "<a ", "/>")),
    "one tag of namespaces": Hostile(MARKUP, numbered("xmlns:b{0}='{0}' ", "<a ", "/>")),
    "attributes of namespaces": Hostile(MARKUP, numbered("p:b{}='1' ", "<a xmlns:p='u' ", "/>")),
    "names": Hostile(MARKUP, numbered("<b{}/>", "<a>", "</a>")),
    "ends": Hostile(MARKUP, filled("/>")),
    "entities": Hostile(MARKUP, filled("&a")),
    "raw text": Hostile(MARKUP, filled("<script></script")),
    "tables": Hostile(MARKUP, filled("<table><td>")),
    "formatting": Hostile(MARKUP, nested("<b>", "</b><p>")),
    "words": Hostile(WORDS, filled("cat ")),
    "other words": Hostile(WORDS, numbered("{} ")),
    "brackets": Hostile(WORDS, filled(")")),
    "quotes": Hostile(WORDS, filled('"')),
    "dots": Hostile(WORDS, filled(".)")),
    "long stems": Hostile(("meteor",), filled("ational", "", " x")),
    "lists": Hostile(("is-json", "contains-json"), filled("[")),
    "objects": Hostile(("is-json", "contains-json"), filled('{"a":')),
    "SQL in brackets": Hostile(("is-sql",), nested("(", ")", "select 1 from t")),
    "selects": Hostile(("is-sql",), nested("select a from (", ")", "select 1 from t")),
    "cases": Hostile(("is-sql",), nested("case when 1 then ", " end", "1")),
    "functions": Hostile(("is-sql",), nested("select f(", ")", "1")),
    "comments of SQL": Hostile(("is-sql", "contains-sql"), filled("/*", "select 1 ")),
    "blocks": Hostile(("contains-sql",), filled("```sql\n")),
}
LARGEST = {**dict.fromkeys(WORDS, 50_000), "is-sql": 10_000, "contains-sql": 50_000}
"""Enough characters to separate slow types from fast ones; half of the bound for other types."""


async def beat(gaps: list[float], cancelled: trio.CancelScope) -> None:
    """Measure another lane: the computing time of the whole process between two of its steps."""
    with cancelled:
        while True:
            began = time.process_time()
            await trio.sleep(0.002)
            gaps.append(time.process_time() - began)


async def judge(kind: str, text: str, gaps: list[float], value: Any = None, **more: Any) -> str:
    """Grade an output with a type, as a run does."""
    assertion = Assertion(type=kind, value=VALUES.get(kind, value), **more)
    ready, subject = make_ready(assertion, str, KINDS), Subject.of(text)
    judging: Any = ready.kind.judge
    beating = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(beat, gaps, beating)
        await trio.testing.wait_all_tasks_blocked()
        try:
            try:
                return find(ready, judging, subject, patient=False).reason
            except SlowError:
                return (await trio.to_thread.run_sync(find, ready, judging, subject)).reason
        except GradingError as error:
            return str(error)
        finally:
            await trio.lowlevel.cancel_shielded_checkpoint()
            beating.cancel()


def gap_of(kind: str, text: str, **more: Any) -> tuple[float, str]:
    """Return the longest gap of another lane, as on a machine without other load.

    It is the minimum of three, because other programs make caches cold.
    """
    least, verdict = float("inf"), ""
    for _ in range(3):
        gaps: list[float] = []
        verdict = trio.run(partial(judge, kind, text, gaps, **more))
        least = min(least, max(gaps, default=0.0) / slowness())
        if least < GAP:
            break
    return least, verdict


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, one in OUTPUTS.items() for kind in one.kinds]
)
def test_a_hostile_output_does_not_delay_other_lanes(name: str, kind: str) -> None:
    """It gets a verdict, or is refused as too long for its type."""
    longest = KINDS[kind].longest
    size = LARGEST.get(kind, MOST_BYTES // 8 if longest is None else longest // 2)
    least, verdict = gap_of(kind, OUTPUTS[name].text(size))
    assert least < GAP
    assert verdict


@pytest.mark.parametrize("kind", MARKUP)
@pytest.mark.parametrize("inverted", ["", "not-"])
def test_an_output_that_is_too_long_is_refused_by_types_that_cannot_stop(
    kind: str, inverted: str
) -> None:
    """Neither the type nor its negation passes."""
    text = "<a>" + "x" * LONGEST_SEARCHED
    ready = make_ready(Assertion(type=inverted + kind), str, KINDS)
    judging: Any = ready.kind.judge
    with pytest.raises(
        GradingError, match=f"^the output has 1,000,003 characters; {kind} takes up"
    ):
        find(ready, judging, Subject.of(text))


@pytest.mark.parametrize(
    ("size", "edits"), [(60_000, 60_000), (1_000_000, 1_400), (4_000_000, 370), (4_000_000, 1e9)]
)
def test_edit_distances_are_computed_only_if_that_is_quick(size: int, edits: float) -> None:
    """All comparisons are made in one step."""
    least, verdict = gap_of(
        "levenshtein", "ab" * (size // 2), value="ba" * (size // 2), threshold=edits
    )
    assert least < 5 * GAP  # all of them would take minutes if none were quick
    assert verdict
