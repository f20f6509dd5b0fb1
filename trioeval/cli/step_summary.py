"""The summary of a step of GitHub Actions, which a run in one adds to."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trioeval.errors import TrioevalError
from trioeval.report import Results, inert

_NAME = 200  # characters of a path


def add_step_summary(
    environ: Mapping[str, str], results: Sequence[Results], warn: Callable[[str], None]
) -> None:
    """Append a summary of a run to that of its step, if it runs in one.

    Args:
        environ: The variables of the process.
        results: The run, or its tasks.
        warn: Told why it could not be written, which does no harm to the run.
    """
    path = environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    from trioeval.report.markdown import markdown_chunks  # noqa: PLC0415 - rarely needed

    try:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(markdown_chunks(*results))
    except (OSError, TrioevalError) as error:
        why = getattr(error, "strerror", None) or error
        warn(f"the summary of the step cannot be written: {inert(path, _NAME)}: {why}")
