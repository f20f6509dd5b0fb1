"""The paths that a loaded suite names for the command that runs it: result files and environment files."""

from collections.abc import Mapping
from pathlib import Path

from trioeval.documents.files import FileContext, wrong_paths
from trioeval.documents.mistakes import MistakenError
from trioeval.errors import UsageError
from trioeval.suite.model import Suite


def checked_path(suite: Suite, named: str, key: str) -> Path:
    """Return the path that a loaded suite names, with its links resolved.

    It was allowed when the suite was loaded, and is checked again: the file system may have changed since.

    Args:
        suite: The suite; the path may lead into its folders.
        named: The path as it is written in the suite.
        key: The key that contains it.

    Raises:
        UsageError: It now leads outside.
    """
    try:
        return _context(suite).place(named)
    except MistakenError as error:
        raise UsageError(f"{key}: {error}") from None


def read_own_env_files(suite: Suite, *, may_be_missing: bool = False) -> Mapping[str, str]:
    """Return the variables of the environment files that a suite names itself; later files win.

    Args:
        suite: The suite.
        may_be_missing: Whether files that do not exist are left out.

    Raises:
        UsageError: A file cannot be read, has invalid lines, or sets a variable that names a file outside of
            the suite's root.
    """
    options, found = suite.command_line_options, dict[str, str]()
    named = [("envFile", name) for name in options.env_file]
    named += (("envPath", name) for name in options.env_path)
    if not named:
        return found
    from trioeval.documents.environment import read_env_file

    context = _context(suite)
    for key, name in named:
        path = checked_path(suite, name, f"commandLineOptions.{key}")
        if may_be_missing and not path.exists():
            continue
        variables = read_env_file(path, key)
        wrong = [
            f"{path}: {part.at[0]}: {part.message}" for part in wrong_paths(variables, context)
        ]
        if wrong:
            raise UsageError("\n".join(wrong))
        found |= variables
    return found


def _context(suite: Suite) -> FileContext:
    roots = suite.roots or (suite.directory,)
    return FileContext(directory=suite.directory, roots=roots, allow_outside=suite.allow_outside)
