"""The commands for the cache of replies. They are carried out by `trioeval.cli.commands.cache_actions`."""

from pathlib import Path

import cyclopts

from trioeval.cli.flags import Switch

cache = cyclopts.App(name="cache")


@cache.command(name="stats")
def stats(*, json: Switch = False) -> int:
    """Tell how many replies are in the cache, from whom and from when.

    Parameters
    ----------
    json
        As JSON.
    """
    from trioeval.cli.commands.cache_actions import show_contents  # noqa: PLC0415 - imports wait until they are needed

    return show_contents(as_json=json)


@cache.command(name="clear")
def clear(*, older_than: str | None = None, provider: str | None = None) -> int:
    """Remove replies from the cache; all of them, if nothing says which.

    Parameters
    ----------
    older_than
        Those that were kept longer ago than this: `12h`, `30d`, `8w`.
    provider
        Those of this provider, as `cache stats` names it: `openai`, or one model, `openai:gpt-4.1`.
    """
    from trioeval.cli.commands.cache_actions import clear_entries  # noqa: PLC0415 - see above

    return clear_entries(older_than=older_than, provider=provider)


@cache.command(name="export")
def export(file: Path, /) -> int:
    """Write the replies of the cache to a JSONL file, oldest first.

    Parameters
    ----------
    file
        Where to; what is there is replaced.
    """
    from trioeval.cli.commands.cache_actions import write_entries  # noqa: PLC0415 - see above

    return write_entries(file)
