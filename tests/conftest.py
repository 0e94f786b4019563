"""Settings for all tests."""

import os

from hypothesis import settings

# A slow machine is not a bug: no test fails because one of its examples took long. The same examples every time, so
# that a change fails for what it changed; PENSTOCK_EXPLORE=1 looks for new ones.
settings.register_profile("penstock", deadline=None, derandomize=not os.environ.get("PENSTOCK_EXPLORE"))
settings.load_profile("penstock")
