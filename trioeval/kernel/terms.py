"""What holds for the calls of all jobs of a run."""

from collections.abc import Mapping

import attrs

from trioeval.kernel.events import Observer
from trioeval.kernel.lane import Lane
from trioeval.kernel.needs import Need, Purse
from trioeval.kernel.withdrawal import Withdrawal


@attrs.frozen
class Terms:
    """What holds for the calls of all jobs of a run."""

    lanes: Mapping[str, Lane]
    deadline: float
    observe: Observer | None
    purse: Purse | None
    """What calls are paid from."""
    plain: Need
    """Of a call that says nothing of tokens and money."""
    withdrawal: Withdrawal
    """What a stop means for first requests."""
