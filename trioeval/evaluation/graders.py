"""The judges of a suite, resolved and checked before the first call.

Each is a provider like those under test: with a lane, retries, a budget and recordings, and open for as long
as they are. A built-in judge is a fixed model of the first family with a configured key, so that results name
the model that judged, and a new model does not change them.
"""

from collections.abc import Container, Iterator, Mapping, Sequence

import attrs

from trioeval.errors import Problem, SuiteError
from trioeval.evaluation.providers import Resolver, below_path
from trioeval.grading import Assertion, Kinds
from trioeval.grading.algebra import leaves
from trioeval.grading.kind import Role
from trioeval.grading.registry import split_type
from trioeval.providers import ProviderSpec
from trioeval.suite.expand import Expansion
from trioeval.suite.grader_entries import ROLES, grader_for
from trioeval.suite.model import ProviderEntry, Suite, Test
from trioeval.suite.tests import Joined, SparseTests

# The judges that the assertions of a suite require: pure, from the suite alone.
#
# The first of these that names a provider for the role wins: the assertion, the options of its test (then
# those of the default test and the command line's `--grader`), the default test's own provider, and the
# built-in judges. The default test's provider is not declared as a judge, so it is used only if it is able
# to.


SEARCHING_KINDS = frozenset({"search-rubric"})
"""Types whose judge needs web search."""

A_MODEL: Mapping[Role, str] = {
    "text": "a text model",
    "embedding": "an embedding model",
    "classification": "a classification model",
    "moderation": "a moderation model",
}
"""The name of a judge, by its role."""

_PYTHON_FUNCTIONS = {
    "embedding": "call_embedding_api",
    "classification": "call_classification_api",
}


@attrs.frozen
class JudgeCandidate:
    """A provider that may judge."""

    entry: ProviderEntry
    path: str
    """The place that names it."""
    named: bool = True
    """True if it is declared as a judge; otherwise it is used only if it is able to."""


@attrs.frozen
class RequiredJudge:
    """The judge that an assertion requires."""

    role: Role
    candidates: tuple[JudgeCandidate, ...]
    """Best first; the built-in judges come after them."""
    searches: bool
    """True if it needs web search."""
    path: str
    """The assertion."""
    type: str
    seen: bool = True
    """False if only unread lines might need it."""

    @property
    def key(self) -> str:
        """A key that is the same for equal requirements."""
        entries = [(key_of(one.entry), one.named) for one in self.candidates]
        return repr((self.role, entries, self.searches))


def key_of(entry: ProviderEntry) -> str:
    """Return a key that is the same for equal entries, which are one judge."""
    return repr(attrs.astuple(entry))  # configs have no hash


def for_role(entry: ProviderEntry, role: Role) -> ProviderEntry:
    """Return an entry for a role: a Python file has a function for each.

    Example:
        >>> for_role(ProviderEntry(id="file://judge.py"), "embedding").id
        'file://judge.py:call_embedding_api'
    """
    function = _PYTHON_FUNCTIONS.get(role)
    is_file = entry.id.startswith(("file://", "python:")) and entry.id.endswith(".py")
    if function is None or not is_file:
        return entry
    return attrs.evolve(entry, id=f"{entry.id}:{function}", label=entry.name)


def candidates(
    assertion: Assertion,
    options: object,
    default: Test | None,
    role: Role,
    *,
    path: str = "$",
    options_at: str = "$",
) -> Iterator[JudgeCandidate]:
    """Yield the providers that may judge an assertion in a role, best first.

    Args:
        assertion: The assertion.
        options: The provider option of its test, merged with that of the default test.
        default: The default test of the suite.
        role: The role.
        path: The path of the assertion.
        options_at: The path of the test with those options.
    """
    if (entry := grader_for(assertion.provider, role)) is not None:
        yield JudgeCandidate(for_role(entry, role), f"{path}.provider")
    if (entry := grader_for(options, role)) is not None:
        yield JudgeCandidate(for_role(entry, role), f"{options_at}.options.provider")
    own = None if default is None else default.judge or default.provider
    if own is not None and own.user is None:
        yield JudgeCandidate(for_role(own, role), "$.defaultTest.provider", named=False)


def required_judges(steps: Expansion) -> tuple[RequiredJudge, ...]:
    """Return each judge that a suite requires once, in order of appearance."""
    suite = steps.suite
    found: dict[str, RequiredJudge] = {}
    for one in _all_wanted(steps):
        found.setdefault(one.key, one)
    if is_partly_read(steps.tests):
        # Assertions in unread lines may be of any type; that is known only when their rows run.
        for one in _for_any_line(suite):
            found.setdefault(one.key, one)
    return tuple(found.values())


def _all_wanted(steps: Expansion) -> Iterator[RequiredJudge]:
    suite = steps.suite
    default = suite.default_test or Test()
    shared = tuple(_asking(default.assertions, suite.kinds))
    yield from _of(shared, default.options.provider, suite, "$.defaultTest", "$.defaultTest")
    for place in steps.checked_tests:
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
    """Yield the assertions that need judges, with their paths in the file."""
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
) -> Iterator[RequiredJudge]:
    for beneath, assertion, roles in asking:
        for role in ROLES:
            if role not in roles:
                continue
            at = path + beneath
            given = candidates(
                assertion, options, suite.default_test, role, path=at, options_at=options_at
            )
            searches = split_type(assertion.type)[0] in SEARCHING_KINDS
            yield RequiredJudge(role, tuple(given), searches, at, assertion.type)


def _for_any_line(suite: Suite) -> Iterator[RequiredJudge]:
    default = suite.default_test or Test()
    for role in ROLES:
        none = Assertion(type="")
        given = candidates(none, default.options.provider, suite.default_test, role)
        yield RequiredJudge(
            role, tuple(given), searches=False, path="$.tests", type=role, seen=False
        )


def is_partly_read(tests: Sequence[Test]) -> bool:
    """Return whether some tests are lines that are only read when their rows run."""
    if isinstance(tests, Joined):
        return any(map(is_partly_read, tests.parts))
    return isinstance(tests, SparseTests)


def missing_judge(wish: RequiredJudge, hint: str) -> Problem:
    """Return the problem of a requirement without any judge."""
    need = "needs a model with web search" if wish.searches else f"needs {A_MODEL[wish.role]}"
    return Problem(wish.path, f"{wish.type} {need}, and none is configured", hint)


@attrs.frozen
class BuiltInJudge:
    """A model that judges if none is configured."""

    keys: tuple[str, ...]
    """Environment variables of which one holds its key."""
    id: str
    config: Mapping[str, object] = attrs.field(factory=dict)

    @property
    def entry(self) -> ProviderEntry:
        """Its entry, as a suite would write it."""
        return ProviderEntry(id=self.id, config=self.config)


_OPENAI = ("OPENAI_API_KEY",)
_ANTHROPIC = ("ANTHROPIC_API_KEY",)
_GOOGLE = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
_MISTRAL = ("MISTRAL_API_KEY",)

BUILT_IN: Mapping[Role, Sequence[BuiltInJudge]] = {
    "text": (
        BuiltInJudge(_OPENAI, "openai:chat:gpt-4.1"),
        BuiltInJudge(_ANTHROPIC, "anthropic:claude-sonnet-4-6"),
        BuiltInJudge(_GOOGLE, "google:gemini-2.5-pro"),
        BuiltInJudge(_MISTRAL, "mistral:mistral-large-2512"),
    ),
    "embedding": (
        BuiltInJudge(_OPENAI, "openai:embedding:text-embedding-3-large"),
        BuiltInJudge(_GOOGLE, "google:embedding:gemini-embedding-001"),
        BuiltInJudge(_MISTRAL, "mistral:embedding:mistral-embed"),
    ),
    "classification": (),
    "moderation": (BuiltInJudge(_OPENAI, "openai:moderation:omni-moderation-latest"),),
}
"""By role, the first family first."""

SEARCHING: Sequence[BuiltInJudge] = (
    BuiltInJudge(_OPENAI, "openai:responses:gpt-4.1", {"tools": [{"type": "web_search_preview"}]}),
    BuiltInJudge(
        _ANTHROPIC,
        "anthropic:claude-sonnet-4-6",
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    ),
    BuiltInJudge(_GOOGLE, "google:gemini-2.5-pro", {"tools": [{"googleSearch": {}}]}),
)
"""Models with web search."""

_SEARCH_TOOL = '"tools": [{"type": "web_search_preview"}]'

_EXAMPLES: Mapping[Role, str] = {
    "text": "openai:gpt-4.1",
    "embedding": "openai:embedding:text-embedding-3-large",
    "classification": "file://classifier.py",
    "moderation": "openai:moderation:omni-moderation-latest",
}


@attrs.frozen(kw_only=True)
class Graders:
    """The judges that a suite requires, in the order in which they are first required."""

    entries: list[ProviderEntry] = attrs.field(factory=list)
    paths: list[str] = attrs.field(factory=list)
    """The path at which the suite names each, or requires it if it is built in."""
    specs: list[ProviderSpec] = attrs.field(factory=list)
    """Their specifications, in the same order; those of recordings if these are replayed."""
    places: dict[tuple[Role, str], int] = attrs.field(factory=dict)
    """Their indices, by role and the key of an entry."""
    built_in: dict[tuple[Role, bool], int] = attrs.field(factory=dict)
    """The index of the judge to use if none is configured, by role and need of web search."""
    missing: dict[str, str] = attrs.field(factory=dict)
    """Reasons why a requirement that perhaps no row has cannot be met, by its key."""

    def place(
        self,
        assertion: Assertion,
        options: object,
        default: Test | None,
        role: Role,
        *,
        searches: bool = False,
    ) -> int | str:
        """Return the index of the judge of an assertion in a role, or the reason why it has none.

        Args:
            assertion: The assertion.
            options: The provider option of its test, merged with that of the default test.
            default: The default test of the suite.
            role: The role.
            searches: Whether it needs web search.
        """
        given = tuple(candidates(assertion, options, default, role))
        for one in given:
            place = self.places.get((role, key_of(one.entry)))
            if place is not None:
                return place
            if one.named:
                break
        else:
            if (place := self.built_in.get((role, searches))) is not None:
                return place
        wish = RequiredJudge(role, given, searches, "", assertion.type)
        default_reason = (
            f"it needs {A_MODEL[role]}, which the suite did not name when it was loaded"
        )
        return self.missing.get(wish.key, default_reason)


@attrs.define(eq=False, repr=False)
class _JudgeSearch:
    """A search for the judges of a suite."""

    resolver: Resolver
    recorded: Container[str] | None
    """Labels or ids of replayed providers; None without a replay."""
    found: Graders = attrs.field(init=False, factory=Graders)
    positions: dict[str, int] = attrs.field(init=False, factory=dict)
    """The indices of all, by the keys of their entries."""
    problems: list[Problem] = attrs.field(init=False, factory=list)

    def grant(self, wish: RequiredJudge) -> None:
        """Find the first candidate that is able to judge."""
        for one in wish.candidates:
            problems = self._take(one, wish)
            if not problems:
                return
            if one.named:
                self._refuse(wish, problems)
                return
        kind = (wish.role, wish.searches)
        if kind in self.found.built_in:
            return
        chosen = self._chosen(wish)
        if chosen is None:
            self._refuse(wish, [missing_judge(wish, _hint(wish))])
        elif problems := self._take(JudgeCandidate(chosen.entry, wish.path), wish):
            self._refuse(wish, problems)
        else:
            self.found.built_in[kind] = self.found.places[wish.role, key_of(chosen.entry)]

    def _refuse(self, wish: RequiredJudge, problems: Sequence[Problem]) -> None:
        if wish.seen:
            self.problems += problems
        else:
            self.found.missing[wish.key] = "; ".join(
                ". ".join(filter(None, (one.message, one.hint))) for one in problems
            )

    def _take(self, one: JudgeCandidate, wish: RequiredJudge) -> Sequence[Problem]:
        """Add a judge; return the problems if it is not able to judge."""
        key = key_of(one.entry)
        if (wish.role, key) in self.found.places and not wish.searches:
            return ()
        known = self.positions.get(key)
        if self.recorded is not None:
            # Its abilities are not checked: it was able to judge if it was recorded.
            if not one.named and one.entry.name not in self.recorded:
                return [Problem(one.path, "it was not recorded")]
        else:
            try:
                spec = self.resolver(one.entry) if known is None else self.found.specs[known]
            except SuiteError as error:
                return below_path(error.problems, one.path)
            if unable := _unable(spec, one.path, wish):
                return unable
            if known is None:
                self.found.specs.append(spec)
        if known is None:
            self.positions[key] = known = len(self.found.entries)
            self.found.entries.append(one.entry)
            self.found.paths.append(one.path)
        self.found.places[wish.role, key] = known
        return ()

    def _chosen(self, wish: RequiredJudge) -> BuiltInJudge | None:
        """Return the built-in judge: with a replay a recorded one, else the first with a key."""
        offers = SEARCHING if wish.searches else BUILT_IN[wish.role]
        if self.recorded is not None:
            for one in offers:
                if one.id in self.recorded:
                    return one
        environ = self.resolver.context.environ
        return next((one for one in offers if any(environ.get(key) for key in one.keys)), None)


def find_graders(
    wishes: Sequence[RequiredJudge], resolver: Resolver, recorded: Container[str] | None = None
) -> tuple[Graders, Sequence[Problem]]:
    """Find the judges that a suite requires, and the problems of its configuration of them.

    Args:
        wishes: The required judges.
        resolver: Resolves the entries of providers.
        recorded: Labels or ids of providers whose replies are replayed, if any; then nothing is resolved,
            and `specs` is empty.
    """
    finding = _JudgeSearch(resolver, recorded)
    for wish in wishes:
        finding.grant(wish)
    return finding.found, tuple(dict.fromkeys(finding.problems))


def _unable(spec: ProviderSpec, path: str, wish: RequiredJudge) -> Sequence[Problem]:
    """Return the problems of a provider that is not able to judge in a role."""
    from trioeval.providers.abilities import abilities, may_search

    able = abilities(spec.settings)
    if wish.role not in able:
        what = " or ".join(sorted(able))
        fault = f"{wish.type} needs {A_MODEL[wish.role]}, and {spec.id} is for {what}"
        return [Problem(path, fault, _example(wish))]
    if wish.searches and not may_search(spec.settings):
        fault = f"{wish.type} needs a model with web search, and {spec.id} has none"
        hint = f"name a model with a search tool in its config: {_SEARCH_TOOL}"
        return [Problem(path, fault, hint)]
    return ()


def _hint(wish: RequiredJudge) -> str:
    offers = SEARCHING if wish.searches else BUILT_IN[wish.role]
    keys = [one.keys[0] for one in offers]
    return f"{_example(wish)}, or set {' or '.join(keys)}" if keys else _example(wish)


def _example(wish: RequiredJudge) -> str:
    role, known = wish.role, _EXAMPLES[wish.role]
    example = f'"{known}"' if role == "text" else f'{{"{role}": "{known}"}}'
    return f'name one, for example "provider": {example} in the options of defaultTest'
