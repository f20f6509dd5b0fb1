"""What a lane waits for, in a word or two: for progress lines, summaries and timelines."""

from collections.abc import Mapping

from trioeval.kernel.events import Why

WAIT_WORDS: Mapping[Why, str] = {
    Why.GATE: "a row alone",
    Why.WINDOW: "earlier rows",
    Why.TURN: "others in line",
    Why.PAUSED: "paused",
    Why.BLOCKED: "429",
    Why.PACE: "rpm",
    Why.DELAY: "delay",
    Why.TOKENS: "tpm",
    Why.SLOT: "slots",
    Why.BUDGET: "budget",
    Why.CAP: "slots of all lanes",
    Why.QUOTA: "shared limit",
    Why.BACKOFF: "back-off",
}
"""Of each `Why`."""
