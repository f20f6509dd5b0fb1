"""Whom the assertions of a suite want as their judges: pure, from the suite alone.

The first of these that says something of the role: the assertion, the options of its test, behind which the
default test's stand with the command line's `--grader`, the default test's own provider, and what is built
in. The default test's provider was not named as a judge, so it is one only where it can be.
"""

from collections.abc import Iterator, Mapping, Sequence

import attrs

from trioeval.errors import Problem
from trioeval.grading import Assertion, Kinds
from trioeval.grading.algebra import leaves
from trioeval.grading.kind import Role
from trioeval.grading.kinds import split_type
from trioeval.suite import Expansion, ProviderEntry, Suite, Test
from trioeval.suite.graders import ROLES, grader_for
from trioeval.suite.joined import Joined, SparseTests

SEARCHING = frozenset({"search-rubric"})
"""Types whose judge has to look things up."""

A_MODEL: Mapping[Role, str] = {
    "text": "a text model",
    "embedding": "an embedding model",
    "classification": "a classification model",
    "moderation": "a moderation model",
}
"""What a judge is called, by its role."""

_PYTHON_FUNCTIONS = {
    "embedding": "call_embedding_api",
    "classification": "call_classification_api",
}


@attrs.frozen
class Candidate:
    """One who may judge."""

    entry: ProviderEntry
    path: str
    """Where that is said."""
    named: bool = True
    """Whether it was named as a judge; otherwise it is one only if it can be."""


@attrs.frozen
class Wanted:
    """A judge that some assertion needs."""

    role: Role
    candidates: tuple[Candidate, ...]
    """The best first; behind them comes what is built in."""
    searches: bool
    """Whether it has to look things up."""
    path: str
    """The assertion."""
    type: str
    seen: bool = True
    """False where only lines that were not read could need it."""

    @property
    def key(self) -> str:
        """The same for equal wishes."""
        said = [(key_of(one.entry), one.named) for one in self.candidates]
        return repr((self.role, said, self.searches))


def key_of(entry: ProviderEntry) -> str:
    """The same for equal entries, which are one judge."""
    return repr(attrs.astuple(entry))  # configs have no hash


def for_role(entry: ProviderEntry, role: Role) -> ProviderEntry:
    """An entry as it is asked in a role: a Python file has a function for each.

    Example:
        >>> for_role(ProviderEntry(id="file://judge.py"), "embedding").id
        'file://judge.py:call_embedding_api'
    """
    function = _PYTHON_FUNCTIONS.get(role)
    is_file = entry.id.startswith(("file://", "python:")) and entry.id.endswith(".py")
    if function is None or not is_file:
        return entry
    return attrs.evolve(entry, id=f"{entry.id}:{function}", label=entry.label or entry.id)


def candidates(
    assertion: Assertion,
    options: object,
    default: Test | None,
    role: Role,
    *,
    path: str = "$",
    options_at: str = "$",
) -> Iterator[Candidate]:
    """Who may judge an assertion in a role, the best first.

    Args:
        assertion: What is judged.
        options: What the options of its test say, merged with those of the default test.
        default: The default test of the suite.
        role: What for.
        path: Where the assertion stands.
        options_at: Where the test stands with those options.
    """
    if (entry := grader_for(assertion.provider, role)) is not None:
        yield Candidate(for_role(entry, role), f"{path}.provider")
    if (entry := grader_for(options, role)) is not None:
        yield Candidate(for_role(entry, role), f"{options_at}.options.provider")
    own = None if default is None else default.judge or default.provider
    if own is not None:
        yield Candidate(for_role(own, role), "$.defaultTest.provider", named=False)


def wanted(steps: Expansion) -> tuple[Wanted, ...]:
    """Every judge that a suite needs, each once, in the order in which they turn up."""
    suite = steps.suite
    found: dict[str, Wanted] = {}
    for one in _all_wanted(steps):
        found.setdefault(one.key, one)
    if _is_partly_read(steps.tests):
        # Which types stand in lines that were not read shows when their rows run.
        for one in _for_any_line(suite):
            found.setdefault(one.key, one)
    return tuple(found.values())


def _all_wanted(steps: Expansion) -> Iterator[Wanted]:
    suite = steps.suite
    default = suite.default_test or Test()
    shared = tuple(_asking(default.assertions, suite.kinds))
    yield from _of(shared, default.options.provider, suite, "$.defaultTest", "$.defaultTest")
    for place in steps.looked_at:
        test = steps.tests[place]
        own, path = test.options.provider, steps.path_of(place)
        at = path if own is not None else "$.defaultTest"
        options = default.options.provider if own is None else own
        if test.assertions:
            asking = tuple(_asking(test.assertions, suite.kinds))
            yield from _of(asking, options, suite, path, at)
        if own is not None and shared:
            yield from _of(shared, own, suite, "$.defaultTest", at)


def _asking(
    assertions: Sequence[Assertion], kinds: Kinds
) -> Iterator[tuple[str, Assertion, frozenset[Role]]]:
    """The assertions that need judges, with their places in the file."""
    for place, assertion in leaves(assertions):
        kind = kinds.get(split_type(assertion.type)[0])
        if kind is not None and kind.roles:
            yield "".join(f".assert[{number}]" for number in place), assertion, kind.roles


def _of(
    asking: Sequence[tuple[str, Assertion, frozenset[Role]]],
    options: object,
    suite: Suite,
    path: str,
    options_at: str,
) -> Iterator[Wanted]:
    for below, assertion, roles in asking:
        for role in ROLES:
            if role not in roles:
                continue
            at = path + below
            given = candidates(
                assertion, options, suite.default_test, role, path=at, options_at=options_at
            )
            searches = split_type(assertion.type)[0] in SEARCHING
            yield Wanted(role, tuple(given), searches, at, assertion.type)


def _for_any_line(suite: Suite) -> Iterator[Wanted]:
    default = suite.default_test or Test()
    for role in ROLES:
        none = Assertion(type="")
        given = candidates(none, default.options.provider, suite.default_test, role)
        yield Wanted(role, tuple(given), searches=False, path="$.tests", type=role, seen=False)


def _is_partly_read(tests: Sequence[Test]) -> bool:
    if isinstance(tests, Joined):
        return any(map(_is_partly_read, tests.parts))
    return isinstance(tests, SparseTests)


def nobody(wish: Wanted, hint: str) -> Problem:
    """That there is none who could judge."""
    what = "looks things up by a model" if wish.searches else f"needs {A_MODEL[wish.role]}"
    return Problem(wish.path, f"{wish.type} {what}, and none is named", hint)
