"""The arithmetic of rates. Uses no clock and no Trio: instants and random numbers are arguments."""

from trioeval.rates.adaptive_limit import AimdLimit as AimdLimit
from trioeval.rates.adaptive_limit import GradientLimit as GradientLimit
from trioeval.rates.adaptive_limit import Limit as Limit
from trioeval.rates.adaptive_limit import Refusal as Refusal
from trioeval.rates.backoff import Backoff as Backoff
from trioeval.rates.backoff import Breaker as Breaker
from trioeval.rates.backoff import BreakerState as BreakerState
from trioeval.rates.budget import Amounts as Amounts
from trioeval.rates.budget import Budget as Budget
from trioeval.rates.budget import Follower as Follower
from trioeval.rates.budget import Hold as Hold
from trioeval.rates.budget import LearntShare as LearntShare
from trioeval.rates.pace import Pace as Pace
from trioeval.rates.pace import Reservation as Reservation
from trioeval.rates.pace import TokenPace as TokenPace
from trioeval.rates.throttle import Allowance as Allowance
from trioeval.rates.throttle import MeasuredRate as MeasuredRate
from trioeval.rates.throttle import RateHint as RateHint
from trioeval.rates.throttle import Throttle as Throttle
