"""Simulations of suites on a virtual clock: the real kernel and lanes, with modelled providers.

`simulate` runs a `SimulatedSuite`; `forecast_suite` also compares other settings of its lanes.
"""

from trioeval.simulation.alternatives import SuiteForecast as SuiteForecast
from trioeval.simulation.alternatives import forecast_suite as forecast_suite
from trioeval.simulation.model import ProviderModel as ProviderModel
from trioeval.simulation.model import SampledCall as SampledCall
from trioeval.simulation.model import ServerLimits as ServerLimits
from trioeval.simulation.model import Spread as Spread
from trioeval.simulation.run import Forecast as Forecast
from trioeval.simulation.run import LaneForecast as LaneForecast
from trioeval.simulation.run import simulate as simulate
from trioeval.simulation.suite import SimulatedSuite as SimulatedSuite
