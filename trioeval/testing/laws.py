"""The laws of the kernel as checks over a trace.

Each raises a plain `AssertionError` that names its law and what broke it. They look only at the trace, so
they hold any scheduler to the laws whose run was recorded. Instants are compared exactly: use scenarios
whose times are whole numbers or dyadic fractions.
"""

from collections.abc import Callable, Mapping

from trioeval.testing.job_laws import (
    check_block,
    check_deadline,
    check_drain,
    check_free,
    check_honest,
    check_leak,
    check_limit,
    check_order,
    check_prompt,
    check_serial,
    check_total,
)
from trioeval.testing.lane_laws import (
    check_aimd,
    check_attempts,
    check_budget,
    check_lease,
    check_pace,
    check_retry_after,
    check_slot,
    check_turn,
    check_width,
)
from trioeval.testing.trace import Trace

LAWS: Mapping[str, Callable[[Trace], None]] = {
    "TOTAL": check_total,
    "ORDER": check_order,
    "PROMPT": check_prompt,
    "HONEST": check_honest,
    "WIDTH": check_width,
    "PACE": check_pace,
    "TURN": check_turn,
    "RETRY_AFTER": check_retry_after,
    "SERIAL": check_serial,
    "LIMIT": check_limit,
    "DEADLINE": check_deadline,
    "DRAIN": check_drain,
    "BLOCK": check_block,
    "FREE": check_free,
    "AIMD": check_aimd,
    "ATTEMPTS": check_attempts,
    "BUDGET": check_budget,
    "SLOT": check_slot,
    "LEASE": check_lease,
    "LEAK": check_leak,
}
"""The laws that every trace keeps, by name. EAGER and ISOLATION need traces of their own."""


def check_all(trace: Trace) -> None:
    """Hold a trace to every law of `LAWS`."""
    for check in LAWS.values():
        check(trace)
