"""Where runs and replies are kept, if nothing says otherwise: in `.trioeval` in the working directory.

What says otherwise is the command line and the environment of the process, never a suite: a file that one
got from somebody must not choose what is written to.
"""

from pathlib import Path

from trioeval.cli.environment import EnvironmentSettings

FOLDER = ".trioeval"
DATABASE = "results.db"
CACHE = "cache.db"


def database_path(flag: Path | None, environment: EnvironmentSettings) -> Path:
    """The database of runs: that of the flag, of `TRIOEVAL_DB`, or the one in the folder of runs.

    Example:
        >>> database_path(None, EnvironmentSettings(config_dir=Path("/c"))).as_posix()
        '/c/results.db'
    """
    return flag or environment.db or _folder(environment) / DATABASE


def agents_folder(database: Path, run: str) -> Path:
    """Where the folders of a run's agents are: beside its database.

    Example:
        >>> agents_folder(Path(".trioeval/results.db"), "eval-1").as_posix()
        '.trioeval/agents/eval-1'
        >>> agents_folder(Path("my.db"), "eval-1").as_posix()
        'my-agents/eval-1'
    """
    own = database.parent.name == FOLDER
    return database.with_name("agents" if own else f"{database.stem}-agents") / run


def cache_path(environment: EnvironmentSettings) -> Path | None:
    """The file of the cache; None for one in memory.

    `CACHE_PATH` names a folder, as promptfoo's does, unless it ends in `.db`.

    Example:
        >>> cache_path(EnvironmentSettings(cache_path=Path("/c"))).as_posix()
        '/c/cache.db'
    """
    if environment.cache_type == "memory":
        return None
    given = environment.cache_path
    if given is None:
        return _folder(environment) / CACHE
    return given if given.suffix == ".db" and not given.is_dir() else given / CACHE


def databases(flag: Path | None, environment: EnvironmentSettings) -> list[tuple[str, Path | None]]:
    """Everything that nothing else may be written over, and what messages call it."""
    return [
        ("the database of runs", database_path(flag, environment)),
        ("the cache", cache_path(environment)),
    ]


def _folder(environment: EnvironmentSettings) -> Path:
    return environment.config_dir or Path(FOLDER)
