"""`--otel`: a run as spans and events of OpenTelemetry."""

import logging
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import trio

from trioeval.errors import UsageError
from trioeval.report import inert

if TYPE_CHECKING:
    from trioeval.telemetry.spans import Telemetry

_SENT_WITHIN = 5.0  # seconds at the end of a run; what is not sent by then is lost
_TOLD = 200  # characters of what an exporter says

_INSTALL = (
    "--otel needs the extra `otel`, and what exports: pip install 'trioeval[otel]' "
    "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
)


def check_telemetry(*, on: bool) -> None:
    """Refuse to send what nobody can send, before anything is paid for.

    Raises:
        UsageError: The extra `otel`, or whatever should export, is not installed.
    """
    if not on:
        return
    try:
        from trioeval.telemetry.export import find_exporters  # noqa: PLC0415 - an extra
    except ImportError:
        raise UsageError(_INSTALL) from None
    find_exporters("traces", os.environ)
    find_exporters("logs", os.environ)


@asynccontextmanager
async def open_telemetry(
    *,
    on: bool,
    run_id: str,
    description: str | None,
    keys: Sequence[str],
    warn: Callable[[str], None],
) -> AsyncGenerator["Telemetry | None"]:
    """Send what happens in a run to OpenTelemetry; flush at the end of the block, behind the run.

    Whatever does not take it delays the end of the block by some seconds, and nothing else.

    Args:
        on: Whether it is asked for.
        run_id: Of the run.
        description: Of the suite.
        keys: What must not stand in anything that is told.
        warn: Told once of what cannot be sent.

    Raises:
        UsageError: The extra `otel`, or whatever should export, is not installed; nothing was called.
    """
    if not on:
        yield None
        return
    check_telemetry(on=True)
    from trioeval.telemetry.content import wants_content  # noqa: PLC0415 - an extra
    from trioeval.telemetry.export import is_own, open_exporting  # noqa: PLC0415
    from trioeval.telemetry.spans import Telemetry  # noqa: PLC0415

    told = _Told(trio.lowlevel.current_trio_token(), warn)
    with told.instead_of_logs(on=is_own()):
        exporting = open_exporting(os.environ)
        try:
            yield Telemetry(
                tracer=exporting.tracer,
                logger=exporting.logger,
                run_id=run_id,
                description=description,
                content=wants_content(os.environ),
                keys=keys,
            )
        finally:
            # Also when the run was cancelled: of that run one wants to see most.
            with trio.move_on_after(_SENT_WITHIN, shield=True) as scope:
                async with trio.open_nursery() as nursery:
                    for finish in exporting.finish:
                        nursery.start_soon(told.of_failure, finish)
            if scope.cancelled_caught:
                told.once(f"it took more than {_SENT_WITHIN:g} s")


class _Told(logging.Handler):
    """Tells once of what exporters log, which they do from threads of their own."""

    def __init__(self, token: trio.lowlevel.TrioToken, warn: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._token = token
        self._warn = warn
        self._is_told = False

    def emit(self, record: logging.LogRecord) -> None:
        """An exporter has a problem. In any thread."""
        text = record.getMessage()
        if record.exc_info is not None and record.exc_info[1] is not None:
            text = f"{text} ({type(record.exc_info[1]).__name__})"
        try:
            self._token.run_sync_soon(self.once, text)
        except trio.RunFinishedError:
            return

    async def of_failure(self, finish: Callable[[], object]) -> None:
        """Send what is left, in a thread, and tell what is raised there. A checkpoint."""
        try:
            await trio.to_thread.run_sync(finish, abandon_on_cancel=True)
        except Exception as error:  # noqa: BLE001 - the code of others must not cost the results
            self.once(f"{type(error).__name__}: {error}")

    def once(self, text: str) -> None:
        if not self._is_told:
            self._is_told = True
            self._warn(f"--otel: not everything can be sent: {inert(text, _TOLD)}")

    @contextmanager
    def instead_of_logs(self, *, on: bool) -> Iterator[None]:
        """For as long as the block, what exporters log is told here; of what comes later, nobody hears."""
        if not on:
            yield
            return
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self)
        logger.propagate = False  # a line that is logged again and again would tear the progress
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.addHandler(logging.NullHandler())
