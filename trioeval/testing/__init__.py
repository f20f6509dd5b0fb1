"""The reference implementation for property-testing schedulers.

Importing this package imports hypothesis, which makes Trio's scheduling deterministic for the whole
process: add `st.random_module()` to every property about concurrency.
"""

from trioeval.testing.job_laws import check_block as check_block
from trioeval.testing.job_laws import check_deadline as check_deadline
from trioeval.testing.job_laws import check_drain as check_drain
from trioeval.testing.job_laws import check_honest as check_honest
from trioeval.testing.job_laws import check_leak as check_leak
from trioeval.testing.job_laws import check_limit as check_limit
from trioeval.testing.job_laws import check_order as check_order
from trioeval.testing.job_laws import check_prompt as check_prompt
from trioeval.testing.job_laws import check_serial as check_serial
from trioeval.testing.job_laws import check_total as check_total
from trioeval.testing.lane_laws import check_aimd as check_aimd
from trioeval.testing.lane_laws import check_attempts as check_attempts
from trioeval.testing.lane_laws import check_budget as check_budget
from trioeval.testing.lane_laws import check_eager as check_eager
from trioeval.testing.lane_laws import check_isolation as check_isolation
from trioeval.testing.lane_laws import check_pace as check_pace
from trioeval.testing.lane_laws import check_retry_after as check_retry_after
from trioeval.testing.lane_laws import check_slot as check_slot
from trioeval.testing.lane_laws import check_width as check_width
from trioeval.testing.laws import LAWS as LAWS
from trioeval.testing.laws import check_all as check_all
from trioeval.testing.perform import run_scenario as run_scenario
from trioeval.testing.perform import run_side_by_side as run_side_by_side
from trioeval.testing.scenario import Attempt as Attempt
from trioeval.testing.scenario import Call as Call
from trioeval.testing.scenario import Caps as Caps
from trioeval.testing.scenario import Pause as Pause
from trioeval.testing.scenario import Retune as Retune
from trioeval.testing.scenario import Scenario as Scenario
from trioeval.testing.scenario import Script as Script
from trioeval.testing.scenario import ScriptedError as ScriptedError
from trioeval.testing.scenario import Together as Together
from trioeval.testing.strategies import durations as durations
from trioeval.testing.strategies import faulty_scenarios as faulty_scenarios
from trioeval.testing.strategies import lane_specs as lane_specs
from trioeval.testing.strategies import learning_lane_specs as learning_lane_specs
from trioeval.testing.strategies import scenarios as scenarios
from trioeval.testing.strategies import simple_scenarios as simple_scenarios
from trioeval.testing.trace import Asked as Asked
from trioeval.testing.trace import Emission as Emission
from trioeval.testing.trace import Recorder as Recorder
from trioeval.testing.trace import Sample as Sample
from trioeval.testing.trace import Span as Span
from trioeval.testing.trace import Trace as Trace
from trioeval.testing.virtual import run_virtual as run_virtual
