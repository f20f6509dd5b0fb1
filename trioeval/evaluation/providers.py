"""From the entries of a suite to providers that are known to be right, or to recordings in their place."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.documents.files import Around
from trioeval.documents.trust import Trust
from trioeval.errors import Problem, SuiteError
from trioeval.evaluation.reach import refusals
from trioeval.grading import quote
from trioeval.providers import Provider, ProviderSpec, resolve
from trioeval.providers.bounds import MOST_BYTES, reply_bound
from trioeval.providers.config import Reader, Surroundings, is_integer, to_snake
from trioeval.providers.local.replay import read_for_all
from trioeval.providers.programs.entries import DEFAULT_MAX_OUTPUT, read_agent_command
from trioeval.providers.resolve import CODE
from trioeval.providers.secrets import hide_in
from trioeval.suite.expand import Expansion
from trioeval.suite.model import ProviderEntry, Suite
from trioeval.templates import Templates


@attrs.frozen(kw_only=True)
class Resolver:
    """Finds out which providers the entries of a suite mean."""

    suite: Suite
    around: Around
    templates: Templates
    custom: Mapping[str, Provider]
    """Async callables by the id that stands for them."""

    def __call__(self, entry: ProviderEntry) -> ProviderSpec:
        """The provider that an entry means.

        Raises:
            SuiteError: All that is wrong with it, with paths below the entry.
        """
        if isinstance(entry.lane, str) and entry.lane not in self.suite.lanes:
            message = f"there is no lane {quote(entry.lane)} in $.lanes"
            raise SuiteError([Problem(".lane", message)])
        environ, trust = self.around.environ, self.around.trust
        environ = {**environ, **entry.env} if entry.env else environ
        own = self.own_names(entry)
        spec = resolve(
            entry.id,
            entry.config,
            environ=environ,
            directory=self.suite.directory,
            fence=self.around.fence,
            templates=self.templates,
            custom=self.custom,
            label=entry.label,
            overload_statuses=_overload_statuses(self.suite, entry),
            readers=self._readers,
            withheld=trust.withheld(environ, own),
            runs_code=trust.code == "run",
        )
        if not trust.trusted and (refused := [*refusals(spec, self.around, own)]):
            raise SuiteError(refused)
        return spec

    def own_names(self, entry: ProviderEntry) -> frozenset[str]:
        """Names of the variables that the suite gives a provider."""
        return self.around.own_env.union(entry.env)

    @property
    def _readers(self) -> Mapping[str, Reader]:
        """Who reads the entries of some prefixes in place of who usually does."""
        if not self.around.trust.trusted:
            return dict.fromkeys(CODE, _refuse)
        return {"exec": read_agent_command} if self.suite.settings.type == "agent" else {}

    def all_of(
        self, entries: Sequence[ProviderEntry], paths: Sequence[str]
    ) -> tuple[list[ProviderSpec], list[Problem]]:
        """The providers of some entries, and what is wrong with the others."""
        specs: list[ProviderSpec] = []
        problems: list[Problem] = []
        for entry, path in zip(entries, paths, strict=True):
            try:
                specs.append(self(entry))
            except SuiteError as error:
                problems += below(error.problems, path)
        return specs, problems


def _refuse(
    prefix: str, rest: str, _config: Mapping[str, Any], _around: Surroundings
) -> list[Problem]:
    """Read no entry that is code."""
    refused = Trust(trusted=False).code_refusal(quote(f"{prefix}:{rest}"))
    return [Problem(".id", refused.message, refused.hint)]


def below(problems: Sequence[Problem], path: str) -> list[Problem]:
    """Problems of an entry as those of the suite in which it stands."""
    return [attrs.evolve(one, path=f"{path}{one.path}") for one in problems]


def provider_paths(steps: Expansion) -> list[str]:
    """Where each of `steps.providers` stands in the suite."""
    return [_place_of(steps, position) for position in range(len(steps.providers))]


def _place_of(steps: Expansion, position: int) -> str:
    suite = steps.suite
    if position < len(suite.providers):
        return f"$.providers[{position}]"
    own = steps.providers[position]
    if suite.default_test is not None and suite.default_test.provider == own:
        return "$.defaultTest.provider"
    for place in steps.looked_at:
        if steps.tests[place].provider == own:
            return f"$.tests[{place}].provider"
    return "$.tests"


def moved(problem: Problem, paths: Sequence[str]) -> Problem:
    """A problem of the provider with a number, where that provider really stands."""
    for position, path in enumerate(paths):
        start = f"$.providers[{position}]"
        if problem.path.startswith(start):
            return attrs.evolve(problem, path=path + problem.path.removeprefix(start))
    return problem


def replayed(suite: Suite, entries: Sequence[ProviderEntry], file: Path) -> list[ProviderSpec]:
    """Providers, each replaced by its recordings.

    Raises:
        SuiteError: The file cannot be read, or is wrong.
    """
    names = [entry.label or entry.id for entry in entries]
    return [
        ProviderSpec(
            f"replay:{file}",
            name,
            attrs.evolve(settings, most_bytes=_most_bytes(entry)),
            metering=settings.metering,
            overload_statuses=_overload_statuses(suite, entry),
            max_retries=_max_retries(entry),
        )
        for name, entry, settings in zip(names, entries, read_for_all(file, names), strict=True)
    ]


def recorded_names(file: Path) -> frozenset[str]:
    """Labels or ids of those whose replies a file holds.

    Raises:
        SuiteError: The file cannot be read, or is wrong.
    """
    (settings,) = read_for_all(file, [""])
    return frozenset(take.provider for take in settings.recordings if take.provider is not None)


def without_secrets(suite: Suite, specs: Sequence[ProviderSpec]) -> Suite:
    """The suite as it may be shown: an id or a config may hold a URL with a key."""
    entries = tuple(
        attrs.evolve(
            entry,
            id=spec.shown(entry.id),
            label=None if entry.label is None else spec.shown(entry.label),
            config=hide_in(entry.config, spec.secrets),
        )
        # Providers of single tests stand behind those of the suite.
        for entry, spec in zip(suite.providers, specs, strict=False)
    )
    return suite if entries == suite.providers else attrs.evolve(suite, providers=entries)


def _overload_statuses(suite: Suite, entry: ProviderEntry) -> frozenset[int]:
    """The statuses by which the lane of an entry knows that there are too many calls."""
    settings = suite.lanes[entry.lane] if isinstance(entry.lane, str) else entry.lane
    return frozenset() if settings is None else frozenset(settings.overload_statuses)


def _most_bytes(entry: ProviderEntry) -> int:
    """How large a recorded reply may be, as the recorded provider bounds it."""
    is_program = entry.id.startswith("exec:")
    return reply_bound(entry.config, DEFAULT_MAX_OUTPUT if is_program else MOST_BYTES)


def _max_retries(entry: ProviderEntry) -> int | None:
    """What the config of a provider that is replayed says of its lane; all else of it does not count."""
    said = (value for key, value in entry.config.items() if to_snake(str(key)) == "max_retries")
    return next((value for value in said if is_integer(value) and value >= 0), None)
