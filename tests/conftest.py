"""What holds for all tests: how long an example takes on a busy machine is no failure."""

from hypothesis import settings

settings.register_profile("provnet", deadline=None)
settings.load_profile("provnet")
