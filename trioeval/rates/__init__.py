"""Pure arithmetic of rates: no clock, no randomness, no Trio; `now` is always an argument."""

from trioeval.rates.pace import Pace as Pace
