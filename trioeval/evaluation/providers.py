"""Resolves the entries of a suite to checked providers, or to recordings that replace them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.documents.files import FileContext
from trioeval.documents.trust import Trust
from trioeval.errors import Problem, SuiteError
from trioeval.grading import quote
from trioeval.providers import Provider, ProviderSpec, resolve
from trioeval.providers.bounds import MOST_BYTES, reply_bound
from trioeval.providers.config import EntryContext, Reader, is_integer, to_snake
from trioeval.providers.resolve import CODE
from trioeval.providers.secrets import hide_in
from trioeval.suite.expand import Expansion
from trioeval.suite.model import ProviderEntry, Suite
from trioeval.templates import Templates


@attrs.frozen(kw_only=True)
class Resolver:
    """Resolves the entries of a suite to provider specifications."""

    suite: Suite
    context: FileContext
    templates: Templates
    custom: Mapping[str, Provider]
    """Async callables by their provider id."""

    def __call__(self, entry: ProviderEntry) -> ProviderSpec:
        """Return the provider of an entry.

        Raises:
            SuiteError: All problems of the entry, with paths relative to it.
        """
        if isinstance(entry.lane, str) and entry.lane not in self.suite.lanes:
            message = f"$.lanes has no lane {quote(entry.lane)}"
            raise SuiteError([Problem(".lane", message)])
        environ, trust = self.context.environ, self.context.trust
        environ = {**environ, **entry.env} if entry.env else environ
        own = self.own_names(entry)
        spec = resolve(
            entry.id,
            entry.config,
            environ=environ,
            directory=self.suite.directory,
            fence=self.context.fence,
            templates=self.templates,
            custom=self.custom,
            label=entry.label,
            overload_statuses=_overload_statuses(self.suite, entry),
            readers=self._readers,
            withheld=trust.withheld(environ, own),
            runs_code=trust.code == "run",
        )
        if not trust.trusted:
            from trioeval.evaluation.reach import refusals

            if refused := [*refusals(spec, self.context, own)]:
                raise SuiteError(refused)
        return spec

    def own_names(self, entry: ProviderEntry) -> frozenset[str]:
        """Return the names of the variables that the suite sets for a provider."""
        return self.context.own_env.union(entry.env)

    @property
    def _readers(self) -> Mapping[str, Reader]:
        """Replacements for the default readers of entries, by prefix."""
        if not self.context.trust.trusted:
            return dict.fromkeys(CODE, _refuse)
        if self.suite.settings.type != "agent":
            return {}
        from trioeval.providers.programs.entries import read_agent_command

        return {"exec": read_agent_command}

    def all_of(
        self, entries: Sequence[ProviderEntry], paths: Sequence[str]
    ) -> tuple[list[ProviderSpec], list[Problem]]:
        """Return the providers of some entries, and the problems of the others."""
        specs: list[ProviderSpec] = []
        problems: list[Problem] = []
        for entry, path in zip(entries, paths, strict=True):
            try:
                specs.append(self(entry))
            except SuiteError as error:
                problems += below_path(error.problems, path)
        return specs, problems


def _refuse(
    prefix: str, rest: str, _config: Mapping[str, Any], _context: EntryContext
) -> list[Problem]:
    """Refuse an entry that is code."""
    refused = Trust(trusted=False).code_refusal(quote(f"{prefix}:{rest}"))
    return [Problem(".id", refused.message, refused.hint)]


def below_path(problems: Sequence[Problem], path: str) -> list[Problem]:
    """Return problems of an entry as problems of the suite that contains it."""
    return [attrs.evolve(one, path=f"{path}{one.path}") for one in problems]


def config_warnings(specs: Sequence[ProviderSpec], paths: Sequence[str]) -> list[Problem]:
    """Return the warnings about the entries of some providers, each once for all of them."""
    found: dict[str, Problem] = {}
    for spec, path in zip(specs, paths, strict=False):  # recordings have no config
        for one in below_path(spec.warnings, path):
            found.setdefault(one.message, one)
    return [*found.values()]


def provider_paths(steps: Expansion) -> list[str]:
    """Return the path of each of `steps.providers` in the suite."""
    return [_place_of(steps, position) for position in range(len(steps.providers))]


def _place_of(steps: Expansion, position: int) -> str:
    suite = steps.suite
    if position < len(suite.providers):
        return f"$.providers[{position}]"
    own = steps.providers[position]
    if suite.default_test is not None and suite.default_test.provider == own:
        return "$.defaultTest.provider"
    for place in steps.checked_tests:
        if steps.tests[place].provider == own:
            return f"$.tests[{place}].provider"
    for stretch in steps.stretches:
        if stretch.shape.user is not None and stretch.shape.user.place == position:
            from trioeval.suite.simulated_user_form import user_path

            first = stretch.first_place
            return user_path(suite.default_test, steps.tests[first], steps.path_of(first))
    return "$.tests"


def at_provider_path(problem: Problem, paths: Sequence[str]) -> Problem:
    """Return a problem of the provider with a number with that provider's actual path."""
    for position, path in enumerate(paths):
        start = f"$.providers[{position}]"
        if problem.path.startswith(start):
            return attrs.evolve(problem, path=path + problem.path.removeprefix(start))
    return problem


def replayed(suite: Suite, entries: Sequence[ProviderEntry], file: Path) -> list[ProviderSpec]:
    """Return providers, each replaced by its recordings.

    Raises:
        SuiteError: The file cannot be read, or is invalid.
    """
    from trioeval.providers.local.replay import read_for_all

    names = [entry.name for entry in entries]
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
    """Return the labels or ids of the providers with replies in a file.

    Raises:
        SuiteError: The file cannot be read, or is invalid.
    """
    from trioeval.providers.local.replay import read_for_all

    (settings,) = read_for_all(file, [""])
    return frozenset(take.provider for take in settings.recordings if take.provider is not None)


def without_secrets(suite: Suite, specs: Sequence[ProviderSpec]) -> Suite:
    """Return the suite as it may be shown: an id or a config may contain a URL with a key."""
    entries = tuple(
        attrs.evolve(
            entry,
            id=spec.shown(entry.id),
            label=None if entry.label is None else spec.shown(entry.label),
            own_id=None if entry.own_id is None else spec.shown(entry.own_id),
            config=hide_in(entry.config, spec.secrets),
        )
        # Providers of single tests come after those of the suite.
        for entry, spec in zip(suite.providers, specs, strict=False)
    )
    return suite if entries == suite.providers else attrs.evolve(suite, providers=entries)


def _overload_statuses(suite: Suite, entry: ProviderEntry) -> frozenset[int]:
    """Return the statuses that count as overload on the lane of an entry."""
    settings = suite.lanes[entry.lane] if isinstance(entry.lane, str) else entry.lane
    return frozenset() if settings is None else frozenset(settings.overload_statuses)


def _most_bytes(entry: ProviderEntry) -> int:
    """Return the maximum size of a recorded reply, as the recorded provider limits it."""
    if not entry.id.startswith("exec:"):
        return reply_bound(entry.config, MOST_BYTES)
    from trioeval.providers.programs.entries import DEFAULT_MAX_OUTPUT

    return reply_bound(entry.config, DEFAULT_MAX_OUTPUT)


def _max_retries(entry: ProviderEntry) -> int | None:
    """Return `maxRetries` from the config of a replayed provider; the rest of the config is ignored."""
    values = (value for key, value in entry.config.items() if to_snake(str(key)) == "max_retries")
    return next((value for value in values if is_integer(value) and value >= 0), None)
