"""Which flags contradict each other. Pure."""

from trioeval.cli.flags import OutputFlags, RunFlags
from trioeval.errors import UsageError


def check_flags(flags: RunFlags) -> None:
    """Refuse flags that contradict each other.

    Raises:
        UsageError: All that do are named.
    """
    keep, begin = flags.keep, flags.begin
    wrong = []
    if keep.retry is not None and keep.retry_errors:
        wrong.append("--retry-errors and --retry exclude each other: it is --retry errors")
    if begin.resume is not None and keep.retry_errors:
        # Either way to resume, `--resume` and `resume`.
        wrong.append(
            "--retry-errors is not for a run that is resumed: write --retry errors instead"
        )
    if keep.refresh and keep.cache is False:
        wrong.append(
            "--refresh and --no-cache exclude each other: without a cache all is asked anew"
        )
    wrong += _told_twice(flags.output)
    if flags.what.untrusted and flags.what.allow_outside:
        wrong.append(
            "--untrusted and --allow-outside exclude each other: an untrusted suite stays in its folder"
        )
    if flags.what.allow_env and not flags.what.untrusted:
        wrong.append("--allow-env is for --untrusted: any other suite sees the whole environment")
    if goes_on(flags):
        wrong += [
            f"{flag} is of a whole run: it cannot be given for the rest of one"
            for flag, given in (
                ("--no-write", begin.write is False),
                ("--watch", flags.output.watch),
                ("--plan", flags.output.plan),
            )
            if given
        ]
    elif keep.reconcile:
        wrong.append("--reconcile is for a run that goes on: it needs --resume or --retry")
    if wrong:
        raise UsageError("\n".join(wrong))


def _told_twice(output: OutputFlags) -> list[str]:
    """What is to be told and not to be told."""
    found = []
    if output.quiet:
        asked = {
            "--progress": output.progress,
            "--progress-mode": output.progress_mode,
            "--table": output.table,
            "--verbose": output.verbose,
        }
        found = [f"--quiet and {flag} exclude each other" for flag, asks in asked.items() if asks]
    if output.progress is False and output.progress_mode is not None:
        found.append("--no-progress and --progress-mode exclude each other")
    return found


def goes_on(flags: RunFlags) -> bool:
    """Whether a run is asked for that is there already."""
    return flags.begin.resume is not None or flags.keep.retry is not None or flags.keep.retry_errors
