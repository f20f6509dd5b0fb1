"""Plans of jobs on lanes. Depends on Trio and attrs only; knows nothing of models, files or networks."""

from typing import TYPE_CHECKING

from trioeval.lazy import lazy_names

if TYPE_CHECKING:
    from trioeval.kernel.calls import Calls as Calls
    from trioeval.kernel.events import Admitted as Admitted
    from trioeval.kernel.events import CallEnded as CallEnded
    from trioeval.kernel.events import CallStarted as CallStarted
    from trioeval.kernel.events import Event as Event
    from trioeval.kernel.events import Finished as Finished
    from trioeval.kernel.events import LaneClosed as LaneClosed
    from trioeval.kernel.events import LimitChanged as LimitChanged
    from trioeval.kernel.events import Noted as Noted
    from trioeval.kernel.events import Observer as Observer
    from trioeval.kernel.events import Reserving as Reserving
    from trioeval.kernel.events import Salvaged as Salvaged
    from trioeval.kernel.events import Shortage as Shortage
    from trioeval.kernel.events import Throttled as Throttled
    from trioeval.kernel.events import Waiting as Waiting
    from trioeval.kernel.events import WaitReason as WaitReason
    from trioeval.kernel.jobs import Edge as Edge
    from trioeval.kernel.jobs import Job as Job
    from trioeval.kernel.jobs import Plan as Plan
    from trioeval.kernel.jobs import Rank as Rank
    from trioeval.kernel.jobs import Readiness as Readiness
    from trioeval.kernel.jobs import ReadinessUpdate as ReadinessUpdate
    from trioeval.kernel.lane import Lane as Lane
    from trioeval.kernel.lane_spec import Adaptive as Adaptive
    from trioeval.kernel.lane_spec import LaneSpec as LaneSpec
    from trioeval.kernel.lane_spec import LaneStatistics as LaneStatistics
    from trioeval.kernel.lanes import Lanes as Lanes
    from trioeval.kernel.mapping import MappedItem as MappedItem
    from trioeval.kernel.mapping import MappedItems as MappedItems
    from trioeval.kernel.mapping import map_on_lanes as map_on_lanes
    from trioeval.kernel.outcomes import Blocked as Blocked
    from trioeval.kernel.outcomes import Done as Done
    from trioeval.kernel.outcomes import Failed as Failed
    from trioeval.kernel.outcomes import Interrupted as Interrupted
    from trioeval.kernel.outcomes import NotRun as NotRun
    from trioeval.kernel.outcomes import Outcome as Outcome
    from trioeval.kernel.outcomes import Started as Started
    from trioeval.kernel.outcomes import StopReason as StopReason
    from trioeval.kernel.outcomes import TimedOut as TimedOut
    from trioeval.kernel.reservations import Metered as Metered
    from trioeval.kernel.reservations import Permit as Permit
    from trioeval.kernel.reservations import Permits as Permits
    from trioeval.kernel.run import Summary as Summary
    from trioeval.kernel.run import collect as collect
    from trioeval.kernel.run import run_plan as run_plan
    from trioeval.rates import Allowance as Allowance
    from trioeval.rates import BreakerState as BreakerState
    from trioeval.rates import Budget as Budget
    from trioeval.rates import RateHint as RateHint
else:  # type checkers would accept any name
    __getattr__, __dir__, __all__ = lazy_names(
        "trioeval.kernel",
        {
            "trioeval.kernel.calls": "Calls",
            "trioeval.kernel.events": (
                "Admitted CallEnded CallStarted Event Finished LaneClosed LimitChanged Noted"
                " Observer Reserving Salvaged Shortage Throttled Waiting WaitReason"
            ),
            "trioeval.kernel.jobs": "Edge Job Plan Rank Readiness ReadinessUpdate",
            "trioeval.kernel.lane": "Lane",
            "trioeval.kernel.lane_spec": "Adaptive LaneSpec LaneStatistics",
            "trioeval.kernel.lanes": "Lanes",
            "trioeval.kernel.mapping": "MappedItem MappedItems map_on_lanes",
            "trioeval.kernel.outcomes": (
                "Blocked Done Failed Interrupted NotRun Outcome Started StopReason TimedOut"
            ),
            "trioeval.kernel.reservations": "Metered Permit Permits",
            "trioeval.kernel.run": "Summary collect run_plan",
            "trioeval.rates": "Allowance BreakerState Budget RateHint",
        },
    )
