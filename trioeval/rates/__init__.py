"""Arithmetic of rates. Knows no clock and no Trio: time and chance are arguments."""

from trioeval.rates.aimd import AdaptiveLimit as AdaptiveLimit
from trioeval.rates.aimd import AimdLimit as AimdLimit
from trioeval.rates.aimd import FixedLimit as FixedLimit
from trioeval.rates.aimd import Refusal as Refusal
from trioeval.rates.backoff import Backoff as Backoff
from trioeval.rates.breaker import Breaker as Breaker
from trioeval.rates.breaker import BreakerState as BreakerState
from trioeval.rates.budget import Budget as Budget
from trioeval.rates.budget import Follower as Follower
from trioeval.rates.budget import Hold as Hold
from trioeval.rates.delivery import Delivery as Delivery
from trioeval.rates.estimate import LearntShare as LearntShare
from trioeval.rates.gradient import GradientLimit as GradientLimit
from trioeval.rates.hints import Allowance as Allowance
from trioeval.rates.hints import RateHint as RateHint
from trioeval.rates.pace import Pace as Pace
from trioeval.rates.throttle import Throttle as Throttle
from trioeval.rates.tokens import Reservation as Reservation
from trioeval.rates.tokens import TokenPace as TokenPace
