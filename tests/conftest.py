"""Settings for all tests."""

from hypothesis import settings

# A slow machine is not a bug: no test fails because one of its examples took long.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")
