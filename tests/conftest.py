"""What every test shares: how hypothesis runs, and the real services."""

import os

from hypothesis import HealthCheck, settings

# No property depends on the speed of the machine; in CI the same examples are drawn every time.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
