"""The reference implementation for property-testing schedulers.

The strategies and the checks of foreign schedulers need hypothesis, and import it at their first use. It
makes Trio's scheduling deterministic for the whole process: add `st.random_module()` to every property about
concurrency.
"""

import importlib
from typing import TYPE_CHECKING, Any

from trioeval.testing.conformance_provider import broken_promises as broken_promises
from trioeval.testing.conformance_provider import check_provider as check_provider
from trioeval.testing.conformance_provider import echoes as echoes
from trioeval.testing.conformance_provider import numbered as numbered
from trioeval.testing.foreign import Emit as Emit
from trioeval.testing.foreign import ForeignJob as ForeignJob
from trioeval.testing.foreign import ForeignReply as ForeignReply
from trioeval.testing.foreign import Scheduler as Scheduler
from trioeval.testing.foreign import Send as Send
from trioeval.testing.lane_laws import check_aimd as check_aimd
from trioeval.testing.lane_laws import check_attempts as check_attempts
from trioeval.testing.lane_laws import check_budget as check_budget
from trioeval.testing.lane_laws import check_eager as check_eager
from trioeval.testing.lane_laws import check_isolation as check_isolation
from trioeval.testing.lane_laws import check_lease as check_lease
from trioeval.testing.lane_laws import check_pace as check_pace
from trioeval.testing.lane_laws import check_retry_after as check_retry_after
from trioeval.testing.lane_laws import check_slot as check_slot
from trioeval.testing.lane_laws import check_turn as check_turn
from trioeval.testing.lane_laws import check_width as check_width
from trioeval.testing.laws import LAWS as LAWS
from trioeval.testing.laws import check_all as check_all
from trioeval.testing.laws import check_block as check_block
from trioeval.testing.laws import check_deadline as check_deadline
from trioeval.testing.laws import check_drain as check_drain
from trioeval.testing.laws import check_honest as check_honest
from trioeval.testing.laws import check_leak as check_leak
from trioeval.testing.laws import check_limit as check_limit
from trioeval.testing.laws import check_order as check_order
from trioeval.testing.laws import check_prompt as check_prompt
from trioeval.testing.laws import check_serial as check_serial
from trioeval.testing.laws import check_total as check_total
from trioeval.testing.metamorphic import check_added_lane as check_added_lane
from trioeval.testing.metamorphic import check_generous as check_generous
from trioeval.testing.metamorphic import check_narrowed as check_narrowed
from trioeval.testing.metamorphic import check_permuted as check_permuted
from trioeval.testing.metamorphic import check_scaling as check_scaling
from trioeval.testing.metamorphic import check_unknown as check_unknown
from trioeval.testing.metamorphic import check_wider as check_wider
from trioeval.testing.metamorphic import scaled as scaled
from trioeval.testing.model import predict as predict
from trioeval.testing.model import predictions as predictions
from trioeval.testing.model_parts import PredictedCall as PredictedCall
from trioeval.testing.model_parts import PredictedLane as PredictedLane
from trioeval.testing.model_parts import PredictedOutcome as PredictedOutcome
from trioeval.testing.model_parts import Prediction as Prediction
from trioeval.testing.perform import run_scenario as run_scenario
from trioeval.testing.perform import run_side_by_side as run_side_by_side
from trioeval.testing.scenario import AttemptScript as AttemptScript
from trioeval.testing.scenario import CallScript as CallScript
from trioeval.testing.scenario import Caps as Caps
from trioeval.testing.scenario import JobScript as JobScript
from trioeval.testing.scenario import Known as Known
from trioeval.testing.scenario import Pause as Pause
from trioeval.testing.scenario import Retune as Retune
from trioeval.testing.scenario import RunScenario as RunScenario
from trioeval.testing.scenario import ScriptedError as ScriptedError
from trioeval.testing.scenario import SharedLimitScript as SharedLimitScript
from trioeval.testing.scenario import Together as Together
from trioeval.testing.shared import PermitServer as PermitServer
from trioeval.testing.simulated import SimulatedProvider as SimulatedProvider
from trioeval.testing.simulated import SimulatedServer as SimulatedServer
from trioeval.testing.trace import Emission as Emission
from trioeval.testing.trace import GrantedPermit as GrantedPermit
from trioeval.testing.trace import LaneSample as LaneSample
from trioeval.testing.trace import PermitEnd as PermitEnd
from trioeval.testing.trace import RequestedCall as RequestedCall
from trioeval.testing.trace import RunTrace as RunTrace
from trioeval.testing.trace import Settled as Settled
from trioeval.testing.trace import TraceRecorder as TraceRecorder
from trioeval.testing.trace import TraceSpan as TraceSpan
from trioeval.testing.virtual import run_virtual as run_virtual

if TYPE_CHECKING:
    from trioeval.testing.conformance import CAPABILITIES as CAPABILITIES
    from trioeval.testing.conformance import OUTSIDE_LAWS as OUTSIDE_LAWS
    from trioeval.testing.conformance import Breach as Breach
    from trioeval.testing.conformance import Capability as Capability
    from trioeval.testing.conformance import MakePace as MakePace
    from trioeval.testing.conformance import PaceBreach as PaceBreach
    from trioeval.testing.conformance import PaceLike as PaceLike
    from trioeval.testing.conformance import PaceLimits as PaceLimits
    from trioeval.testing.conformance import broken_laws as broken_laws
    from trioeval.testing.conformance import broken_pace_rules as broken_pace_rules
    from trioeval.testing.conformance import check_pacer as check_pacer
    from trioeval.testing.conformance import check_scheduler as check_scheduler
    from trioeval.testing.plain_strategies import adaptive_scenarios as adaptive_scenarios
    from trioeval.testing.plain_strategies import plain_scenarios as plain_scenarios
    from trioeval.testing.strategies import durations as durations
    from trioeval.testing.strategies import faulty_scenarios as faulty_scenarios
    from trioeval.testing.strategies import lane_specs as lane_specs
    from trioeval.testing.strategies import learning_lane_specs as learning_lane_specs
    from trioeval.testing.strategies import no_lane_scenarios as no_lane_scenarios
    from trioeval.testing.strategies import scenarios as scenarios
    from trioeval.testing.strategies import shared_scenarios as shared_scenarios
    from trioeval.testing.strategies import simple_scenarios as simple_scenarios

_HOMES = {
    "conformance": (
        "Breach CAPABILITIES Capability MakePace OUTSIDE_LAWS PaceBreach PaceLike PaceLimits"
        " broken_laws broken_pace_rules check_pacer check_scheduler"
    ),
    "plain_strategies": "adaptive_scenarios plain_scenarios",
    "strategies": (
        "durations faulty_scenarios lane_specs"
        " learning_lane_specs no_lane_scenarios scenarios shared_scenarios simple_scenarios"
    ),
}
"""Names whose modules import hypothesis."""
_HOME_BY_NAME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    home = _HOME_BY_NAME.get(name)
    if home is None:
        msg = f"module 'trioeval.testing' has no attribute {name!r}"
        raise AttributeError(msg)
    try:
        return getattr(importlib.import_module(f"trioeval.testing.{home}"), name)
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        msg = f"trioeval.testing.{name} needs hypothesis: pip install 'trioeval[testing]'"
        raise ModuleNotFoundError(msg, name="hypothesis") from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_BY_NAME})
