"""Settings that every test shares."""

import os

from hypothesis import HealthCheck, settings

# Whole Trio runs are slow to draw for hypothesis' taste, never slow to check.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("quick", max_examples=300, derandomize=False, **_COMMON)
settings.register_profile("deep", max_examples=20_000, **_COMMON)
settings.load_profile(os.environ.get("TRIOEVAL_PROFILE", "quick"))
