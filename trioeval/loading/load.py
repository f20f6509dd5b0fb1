"""Loading of a suite from files or plain data, and the positions of its mistakes."""

import functools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import attrs

from trioeval.documents import check_plain, read_suite_documents
from trioeval.documents.files import FILE, FileContext, names_file, roots_of
from trioeval.documents.mistakes import (
    Mistake,
    MistakenError,
    Mistakes,
    collect_unknown_keys,
    each_once,
    unknown_key_warnings,
)
from trioeval.documents.paths import read_path, show_path
from trioeval.documents.trust import Trust, trust_of
from trioeval.errors import Problem, SuiteError
from trioeval.grading import KINDS, Kinds, quote
from trioeval.loading.structure import respelled, structure_suite
from trioeval.suite.limit_form import limit_warnings
from trioeval.suite.model import UNREADABLE, Suite
from trioeval.suite.sources.tests import remote_names
from trioeval.suite.test_form import with_own_types
from trioeval.suite.tests import with_transformed_vars

# Parts of a suite file that the command line replaces, in plain data, before it is structured.


_SEPARATORS = ":/"
"""Separators before the end of an id that is a name itself: `mini` names `openai:mini`."""


def apply_given(document: Any, given: Mapping[str, Any]) -> Any:
    """Return a document with some top-level keys replaced; all others stay.

    Args:
        document: The data as it was read.
        given: Top-level keys. Under `providers`, names: see `chosen_providers`.

    Example:
        >>> apply_given({"targets": ["echo", "a:b"], "prompts": ["x"]}, {"providers": ["b"]})
        {'prompts': ['x'], 'providers': ['a:b']}
    """
    if not given or not isinstance(document, dict):
        return document
    found = {**document, **given}
    if "providers" in given:
        written = found.pop("targets", None) or document.get("providers") or []
        entries = written if isinstance(written, list) else [written]
        found["providers"] = chosen_providers(entries, given["providers"])
    return found


def chosen_providers(entries: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Return the providers of a suite that some names refer to, in the order of the names.

    A name refers to every entry with that label or id, else to every entry whose id ends in it; a name that
    matches none is the id of a further provider.

    Args:
        entries: Providers of a suite file, in any notation.
        names: Names given by the user.

    Example:
        >>> entries = ["openai:chat:gpt-4.1-mini", {"id": "echo", "label": "back"}]
        >>> chosen_providers(entries, ["back", "gpt-4.1-mini", "exec:cat"])
        [{'id': 'echo', 'label': 'back'}, 'openai:chat:gpt-4.1-mini', 'exec:cat']
    """
    found: list[Any] = []
    for name in names:
        exact = [entry for entry in entries if name in _names(entry)]
        ends = [entry for entry in entries if any(_ends(known, name) for known in _names(entry))]
        found += [entry for entry in exact or ends or [name] if entry not in found]
    return found


def _ends(known: str, name: str) -> bool:
    return any(known.endswith(separator + name) for separator in _SEPARATORS)


def _names(entry: Any) -> Iterator[str]:
    """Yield the label and id of an entry; none if its notation is invalid."""
    match entry:
        case str():
            yield entry
        case {"id": str(name)}:
            yield name
        case dict() if len(entry) == 1:
            yield from (name for name in entry if isinstance(name, str))
            entry = next(iter(entry.values()))
        case _:
            pass
    if isinstance(entry, dict) and isinstance(entry.get("label"), str):
        yield entry["label"]


_OF_FILES = ("python:", "replay:", "local:embedding:")
"""Prefixes of the ids of providers that name a file or a folder."""


def folders_of(given: Mapping[str, Any], directory: Path) -> tuple[Path, ...]:
    """Return the folders of the files that are given. The user who named them permits reading there.

    Args:
        given: See `apply_given`.
        directory: The base of paths in the ids of providers.

    Example:
        >>> given = {
        ...     "tests": "file:///t/a.csv",
        ...     "prompts": ["x"],
        ...     "providers": ["replay:../r.jsonl"],
        ... }
        >>> [str(folder) for folder in folders_of(given, Path("/s"))]
        ['/s/..', '/t']
    """
    named = [*given.get("prompts", ()), *given.get("extensions", ())]
    files = [Path(text.removeprefix(FILE)) for text in named if names_file(text)]
    for text in given.get("providers", ()):
        prefix = next((one for one in (FILE, *_OF_FILES) if text.startswith(one)), None)
        files += [] if prefix is None else [directory / text.removeprefix(prefix)]
    if isinstance(tests := given.get("tests"), str) and names_file(tests):
        files.append(Path(tests.removeprefix(FILE)))
    return tuple(dict.fromkeys(file.parent for file in files if file.is_absolute()))


def _anchored(document: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    from trioeval.loading.anchoring import with_own_paths  # only several files need it

    return with_own_paths(document, folder)


def load_suite(
    path: str | PathLike[str],
    *more: str | PathLike[str],
    environ: Mapping[str, str] | None = None,
    allow_outside: bool = False,
    allow_network: bool = False,
    allow_empty: bool = False,
    given: Mapping[str, Any] | None = None,
    kinds: Kinds = KINDS,
    trusted: bool = True,
    allow_env: Collection[str] = (),
    plans: bool = False,
    strict: bool = False,
) -> Suite:
    """Load a suite from a file, or from several files that are merged.

    Reads every file that it names; of the code that it names, runs only code that creates tests or variables.

    Args:
        path: A `.json`, `.yaml`, `.yml` or `.toml` file, or a `.js` or `.ts` file whose default export is the
            suite; that one is run, even for a plan. Relative paths in it are relative to its folder.
        more: Further suite files, whose prompts, providers and tests are added; other keys are overridden.
        environ: The environment for `{{env.NAME}}` and switches; the process environment if None.
        allow_outside: The suite may read files outside of its repository, or else its folder.
        allow_network: Tests may be fetched from any URL; otherwise only from those that the suite file itself
            names, and none if the suite is not trusted.
        allow_empty: A list or a file of tests may be empty.
        given: Top-level keys that replace those of the files, see `apply_given`. Their paths are absolute,
            and the folders of their files may be read.
        kinds: The known assertion types.
        trusted: The suite may run code, see the environment and use keys. An untrusted suite is refused if it
            contains anything that only a trusted suite may have.
        allow_env: Environment variables that templates of an untrusted suite may see.
        plans: Run no code of the suite: what it would create is listed in `unknown`.
        strict: Every unknown key is a mistake. Otherwise only one that resembles a known key is; any other is
            ignored, with a warning.

    Raises:
        SuiteError: All mistakes of the files, with file, line and column, in order; if there are none, all
            mistakes of variables that code returns.
        UsageError: `allow_env` for a trusted suite, or `allow_outside` for an untrusted one.
    """
    trust = trust_of(trusted=trusted, allow_env=allow_env, allow_outside=allow_outside, plans=plans)
    files = [Path(path), *map(Path, more)]
    environ = os.environ if environ is None else environ
    try:
        document = read_suite_documents(
            files,
            environ=environ,
            allow_outside=allow_outside,
            with_own_paths=_anchored,
            trust=trust,
            run=_run,
        )
    except MistakenError as error:
        problems = _sorted(map(_problem, error.parts), files)
        raise SuiteError(problems, files=[file.absolute() for file in files]) from None
    context = FileContext(
        directory=files[0].absolute().parent,
        environ=environ,
        roots=roots_of((file.absolute().parent for file in files), trust),
        allow_outside=allow_outside,
        allow_network=allow_network,
        allow_empty=allow_empty,
        kinds=kinds,
        trust=trust,
    )
    loading = _Loading(
        document.data, context, {} if given is None else given, document.files, strict=strict
    )

    def placed(mistake: Mistake) -> Mistake:
        # Values of the command line have no position in a file.
        return mistake if {*mistake.at[:1]} & loading.given.keys() else document.placed(mistake)

    def place(problem: Problem) -> Problem:
        if problem.file is not None:
            return problem
        mistake = Mistake(problem.message, problem.hint, at=read_path(problem.path))
        return _problem(placed(respelled(mistake) if "targets" in document.data else mistake))

    suite, mistakes = UNREADABLE, dict.fromkeys(document.mistakes)
    try:
        whole = document.whole and not document.has_gaps
        suite = loading.suite(whole=whole, with_variables=not mistakes)
    except MistakenError as error:
        parts = map(placed, error.parts)
        mistakes |= dict.fromkeys(part for part in parts if not document.follows(part))
    if mistakes:
        raise SuiteError(_sorted(map(_problem, mistakes), loading.files), files=loading.files)
    ignored = unknown_key_warnings(map(placed, loading.ignored))
    warnings = [*document.warnings, *map(placed, loading.warnings_of(suite)), *ignored]
    suite = _with_origins(suite, place)
    return loading.finished(attrs.evolve(suite, file=files[0], place=place), warnings)


def _run(file: Path, context: FileContext) -> Any:
    """Return the suite that a file of JavaScript exports."""
    from trioeval.suite.sources.code import call_for_each, check_node

    context.check_code(quote(file.name))
    check_node(file, "is a suite", context)
    runs = attrs.evolve(context, trust=attrs.evolve(context.trust, plans=False))
    # Messages about the suite begin with the name of its file.
    return call_for_each(file, "value:", [()], runs, shown="its default export")[0]


def parse_suite(
    document: Any,
    *,
    directory: Path | None = None,
    environ: Mapping[str, str] | None = None,
    allow_outside: bool = False,
    allow_network: bool = False,
    allow_empty: bool = False,
    given: Mapping[str, Any] | None = None,
    kinds: Kinds = KINDS,
    trusted: bool = True,
    allow_env: Collection[str] = (),
    plans: bool = False,
    strict: bool = False,
) -> Suite:
    """Create a suite from data with the structure of a suite file.

    Args:
        document: The data, as `json.load` returns it. Templates like `{{env.NAME}}` are rendered in the run.
        directory: The base of relative paths; the working directory if None.
        environ: The environment for switches; the process environment if None.
        allow_outside: The suite may read files outside of the repository of `directory`, or else of that.
        allow_network: As for `load_suite`.
        allow_empty: A list or a file of tests may be empty.
        given: As for `load_suite`.
        kinds: The known assertion types.
        trusted: As for `load_suite`.
        allow_env: Environment variables that templates of an untrusted suite may see.
        plans: Run no code of the suite.
        strict: As for `load_suite`.

    Raises:
        SuiteError: All of its mistakes, as for `load_suite`.
        UsageError: As for `load_suite`.

    Example:
        >>> suite = parse_suite({"providers": ["echo"], "prompts": ["Hello"]})
        >>> suite.providers[0].id, suite.evaluate_options.repeat
        ('echo', 1)
    """
    trust = trust_of(trusted=trusted, allow_env=allow_env, allow_outside=allow_outside, plans=plans)
    if foreign := check_plain(document):
        raise SuiteError(map(_problem, foreign))
    directory = Path.cwd() if directory is None else directory.absolute()
    context = FileContext(
        directory=directory,
        environ=os.environ if environ is None else environ,
        roots=roots_of([directory], trust),
        allow_outside=allow_outside,
        allow_network=allow_network,
        allow_empty=allow_empty,
        kinds=kinds,
        trust=trust,
    )
    loading = _Loading(document, context, {} if given is None else given, strict=strict)
    try:
        suite = loading.suite()
    except MistakenError as error:
        raise SuiteError(map(_problem, error.parts), files=loading.files) from None
    return loading.finished(
        suite, [*loading.warnings_of(suite), *unknown_key_warnings(loading.ignored)]
    )


def _with_origins(suite: Suite, place: Callable[[Problem], Problem]) -> Suite:
    """Return a suite whose prompts can find their places in its file, which is searched only when needed."""

    def origin(path: str) -> str:
        found = place(Problem(path, ""))
        return "" if found.line is None else f"{found.file}:{found.line}:{found.column}"

    def located(one: Suite, at: str) -> Suite:
        prompts = []
        for prompt in one.prompts:
            entry = "" if prompt.entry is None else f"[{prompt.entry}]"
            find = functools.partial(origin, f"{at}.prompts{entry}")
            prompts.append(attrs.evolve(prompt, find_origin=find))
        return attrs.evolve(one, prompts=tuple(prompts))

    tasks = tuple(
        attrs.evolve(task, suite=located(task.suite, f"$.tasks[{number}]"))
        for number, task in enumerate(suite.tasks)
    )
    return located(attrs.evolve(suite, tasks=tasks), "$")


def place_problems(problems: Iterable[Problem], suite: Suite) -> Sequence[Problem]:
    """Return problems that were found after loading, such as those of a provider's config, with positions."""
    if suite.place is None:
        return list(problems)
    return _sorted(dict.fromkeys(map(suite.place, problems)), suite.files)


class _Loading:
    """The state of a suite while it is loaded from plain data."""

    def __init__(
        self,
        document: Any,
        context: FileContext,
        given: Mapping[str, Any],
        files: Iterable[Path] = (),
        *,
        strict: bool,
    ) -> None:
        self.document = document
        self.given = given
        self.ignored: Sequence[Mistake] = ()
        """The unknown keys, which have no effect; empty if they are mistakes."""
        self._strict = strict
        self._warnings: list[Mistake] = []
        self._unknown: list[str] = []
        self._files = dict.fromkeys(files)
        own = self._own_env(context.trust)
        context = attrs.evolve(
            context,
            environ={**context.environ, **own},
            process_environ=context.environ,
            roots=tuple(dict.fromkeys([*context.roots, *folders_of(given, context.directory)])),
            warn=self._warnings.append,
            on_file=self._files.setdefault,
            own_env=frozenset(own),
            on_unknown=self._unknown.append,
        )
        context = attrs.evolve(context, own_urls=remote_names(document) | remote_names(given))
        self.context = with_own_types(document, context)

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that were read."""
        return tuple(self._files)

    def suite(self, *, whole: bool = True, with_variables: bool = True) -> Suite:
        """Structure the suite; its tests get the variables that code returns, if it may run.

        Raises:
            MistakenError: All mistakes of the data, or else of the code and of what it returns.
        """
        document = apply_given(self.document, self.given)
        mistakes = Mistakes()
        suite = UNREADABLE
        with collect_unknown_keys(self._warnings) as unknown, mistakes.below():
            suite = structure_suite(document, self.context, whole=whole)
        mistakes += each_once(unknown if self._strict else ())
        mistakes.raise_any()
        self.ignored = unknown
        if not with_variables:
            return suite

        def changed(one: Suite) -> Suite:
            with mistakes.below():
                return with_transformed_vars(one, self.context)
            return one

        suite = in_every_task(suite, changed)
        mistakes.raise_any()
        return suite

    def warnings_of(self, suite: Suite) -> Iterator[Mistake]:
        """Yield the warnings about the suite."""
        yield from self._warnings
        yield from limit_warnings(suite)

    def finished(self, suite: Suite, warnings: Iterable[Mistake]) -> Suite:
        """Return the suite with its context, files and warnings."""
        context = self.context
        roots = () if context.roots == (context.directory,) else context.roots
        suite = in_every_task(
            suite,
            lambda one: attrs.evolve(
                one,
                directory=context.directory,
                roots=roots,
                allow_outside=context.allow_outside,
                kinds=context.kinds,
                trust=context.trust,
                env=context.trust.without_insecure(one.env),
            ),
        )
        return attrs.evolve(
            suite,
            files=self.files,
            warnings=tuple(map(_problem, dict.fromkeys(warnings))),
            unknown=tuple(dict.fromkeys(self._unknown)),
        )

    def _own_env(self, trust: Trust) -> dict[str, str]:
        """Return the variables that the suite itself defines; mistakes in them are reported elsewhere."""
        own = self.document.get("env") if isinstance(self.document, dict) else None
        if not isinstance(own, dict):
            return {}
        texts = {name: value for name, value in own.items() if isinstance(value, str)}
        trusted = trust.without_insecure(texts)
        for name in (one for one in texts if one not in trusted):
            message = "is ignored: an untrusted suite must not change which servers are trusted"
            self._warnings.append(Mistake(message, at=("env", name), key=True))
        return trusted


def _problem(mistake: Mistake) -> Problem:
    line, column = mistake.place or (None, None)
    file = None if mistake.file is None else _shown(mistake.file)
    return Problem(show_path(mistake.at), mistake.message, mistake.hint, file, line, column)


def _shown(file: Path) -> str:
    """Return the path of a file as seen from the working directory."""
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)


def _sorted(problems: Iterable[Problem], files: Iterable[Path]) -> Sequence[Problem]:
    """Return problems by file, each in the order of its lines; other files in order of appearance."""
    found = list(problems)
    named = [os.path.abspath(problem.file) if problem.file else "" for problem in found]  # noqa: PTH100 - without links, and with no `..`
    order = {name: place for place, name in enumerate(dict.fromkeys([*map(str, files), *named]))}
    by_place: Callable[[tuple[str, Problem]], tuple[int, int, int]] = lambda pair: (  # noqa: E731 - typed
        order[pair[0]],
        pair[1].line or 0,
        pair[1].column or 0,
    )
    return [problem for _, problem in sorted(zip(named, found, strict=True), key=by_place)]


def in_every_task(suite: Suite, change: Callable[[Suite], Suite]) -> Suite:
    """Apply a change to a suite and to the suite of each of its tasks."""
    tasks = tuple(attrs.evolve(task, suite=change(task.suite)) for task in suite.tasks)
    return change(attrs.evolve(suite, tasks=tasks) if tasks else suite)
