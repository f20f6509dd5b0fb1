"""The commands for message buses of agents. They are carried out by `trioeval.cli.bus_…`."""

from typing import Annotated

import cyclopts
from cyclopts import Parameter

from trioeval.cli.flags import Count, NotNegative, Switch, Texts, Whole
from trioeval.cli.interrupts import Interrupts

bus = cyclopts.App(name="bus")

_Injected = Annotated[Interrupts, Parameter(parse=False)]
_Types = Annotated[Texts, Parameter(name="--type")]


@bus.command(name="post")
def post(
    text: str | None = None,
    /,
    *,
    kind: Annotated[str, Parameter(name="--type")] = "INFO",
    bus: str | None = None,
    project: str | None = None,
    task: str | None = None,
    run: str | None = None,
    issue: str | None = None,
    parent: Texts = (),
    link: Texts = (),
    meta: Texts = (),
    fsync: Switch = False,
    rotate_bytes: Count | None = None,
    keep_segments: Count | None = None,
    json: Switch = False,
    interrupts: _Injected,
) -> int:
    """Post a message, and print its id.

    Parameters
    ----------
    text
        What it says; `-`, or nothing, takes all of standard input. `--` before a text that looks like a flag.
    kind
        Its type: INFO, WARNING, ERROR, PROGRESS, FACT, DECISION, QUESTION, ISSUE, or other capitals.
    bus
        The folder of the bus; TRIOEVAL_BUS if not given. It is made if it is not there.
    project
        The run that it belongs to; TRIOEVAL_PROJECT if not given.
    task
        The case that it is about; TRIOEVAL_CASE if not given.
    run
        The attempt that it comes from; TRIOEVAL_RUN if not given.
    issue
        The issue that it is about.
    parent
        The id of a message that it answers; may be given several times.
    link
        A URL that it points at; may be given several times.
    meta
        KEY=VALUE; may be given several times.
    fsync
        Write it through to the disk, whatever its type.
    rotate_bytes
        Begin the next file of the bus when this one has so many bytes.
    keep_segments
        Keep only so many files of the bus, the newest, when a next one is begun.
    json
        Print the message as JSON.
    """
    # Imports wait until they are needed.
    from trioeval.agents.bus.settings import BusSettings  # noqa: PLC0415
    from trioeval.cli.bus_post import Posting, post_message  # noqa: PLC0415

    return post_message(
        Posting(
            text=text,
            type=kind,
            bus=bus,
            project=project,
            task=task,
            run=run,
            issue=issue,
            parents=parent,
            links=link,
            meta=meta,
        ),
        interrupts,
        settings=BusSettings(
            fsync="always" if fsync else None,
            rotate_bytes=rotate_bytes,
            keep_segments=keep_segments,
        ),
        as_json=json,
    )


@bus.command(name="read")
def read(
    *,
    bus: str | None = None,
    since: str | None = None,
    last: Whole | None = None,
    kind: _Types = (),
    json: Switch = False,
) -> int:
    """Print the messages that are there.

    Parameters
    ----------
    bus
        The folder of the bus; TRIOEVAL_BUS if not given.
    since
        Only messages after this one: its number or id.
    last
        Only the last so many.
    kind
        Only messages of this type; may be given several times.
    json
        A line of JSON for each.
    """
    from trioeval.cli.bus_read import read_messages  # noqa: PLC0415 - see above

    return read_messages(bus, since=since, last=last, types=kind, as_json=json)


@bus.command(name="follow")
def follow(
    *,
    bus: str | None = None,
    since: str | None = None,
    kind: _Types = (),
    until: Texts = (),
    timeout: NotNegative = 0.0,
    json: Switch = False,
    interrupts: _Injected,
) -> int:
    """Print the messages that are there, and then each as it comes, until interrupted.

    Parameters
    ----------
    bus
        The folder of the bus, which need not be there yet; TRIOEVAL_BUS if not given.
    since
        Only messages after this one: its number or id.
    kind
        Only messages of this type; may be given several times.
    until
        End behind the first message of this type; may be given several times.
    timeout
        End after so many seconds; 0 for no limit.
    json
        A line of JSON for each.
    """
    from trioeval.cli.bus_follow import Following, follow_messages  # noqa: PLC0415 - see above

    return follow_messages(
        Following(bus=bus, since=since, types=kind, until=until, timeout=timeout, as_json=json),
        interrupts,
    )
