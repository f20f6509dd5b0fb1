"""What a run lets be seen and changed of it while it goes on."""

from collections.abc import Callable

import attrs

from trioeval.kernel import Lanes
from trioeval.report.run_state import RunState


@attrs.frozen(kw_only=True, eq=False)
class Steering:
    """The wheel of one run. Everything is synchronous and happens at once, in the run's Trio thread."""

    run_id: str
    state: Callable[[], RunState]
    """How the run stands now."""
    lanes: Lanes
    stop: Callable[[], None]
    """Start no more rows; those under way finish. As the first Ctrl-C."""
    cancel: Callable[[], None]
    """End what is under way. As the second one."""
