"""Settings that every test shares."""

import os

from hypothesis import HealthCheck, Phase, settings

# Whole Trio runs are slow to draw for hypothesis' taste, never slow to check.
_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("quick", _COMMON, max_examples=200)
settings.register_profile(
    "mutants",  # which law dies matters, not the smallest example of it
    _COMMON,
    max_examples=400,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
)
settings.register_profile("deep", _COMMON, max_examples=20_000)
settings.load_profile(os.environ.get("TRIOEVAL_PROFILE", "quick"))
