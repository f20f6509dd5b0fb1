"""What a suite is read and rendered in: folders, environment, templates; and what extensions make of it."""

from collections.abc import Callable, Mapping

from trioeval.errors import Problem, SuiteError
from trioeval.suite import Around, MistakenError, Suite, Templates, load_filters, show_path
from trioeval.suite.extensions import Extension, read_extensions, with_before_all


def begun(suite: Suite, around: Around) -> tuple[Suite, tuple[Extension, ...]]:
    """A suite as its extensions want it, and those.

    Raises:
        SuiteError: They are wrong, or fail.
    """
    try:
        extensions = read_extensions(suite.extensions, around)
        return with_before_all(suite, extensions, around), extensions
    except MistakenError as error:
        raise SuiteError(
            Problem(show_path(part.at), part.message, part.hint) for part in error.parts
        ) from None


def around_of(suite: Suite, environ: Mapping[str, str], unknown: Callable[[str], None]) -> Around:
    """What the files of a loaded suite are read against when it runs.

    Args:
        suite: The suite.
        environ: The environment of the user.
        unknown: Told of what only a run will show.
    """
    return Around(
        directory=suite.directory,
        environ={**environ, **suite.env} if suite.env else environ,
        roots=suite.roots or (suite.directory,),
        allow_outside=suite.allow_outside,
        kinds=suite.kinds,
        trust=suite.trust,
        own_env=frozenset(suite.env),
        unknown=unknown,
    )


def templates_of(suite: Suite, around: Around) -> tuple[Templates, list[Problem]]:
    """What renders the texts of a run, and what is wrong with the filters that the suite brings."""
    problems: list[Problem] = []
    filters: dict[str, Callable[..., object]] = {}
    try:
        filters = load_filters(suite.nunjucks_filters, around)
    except MistakenError as error:
        problems += [
            Problem(show_path(("nunjucksFilters", *part.at)), part.message, part.hint)
            for part in error.parts
        ]
    templates = Templates(
        # The suite's own is no secret of the machine's.
        env=suite.env if around.switch("DISABLE_TEMPLATE_ENV_VARS") else around.visible_env,
        filters=filters,
        strict=suite.evaluate_options.strict_variables,
        enabled=not around.switch("DISABLE_TEMPLATING"),
        json_aware=not around.switch("DISABLE_JSON_AUTOESCAPE"),
    )
    return templates, problems
