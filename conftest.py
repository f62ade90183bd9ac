"""Settings of every test of the repository."""

from hypothesis import settings

# Machines that run the tests are shared and slow at times: an example's duration says nothing.
settings.register_profile("rllm", deadline=None)
settings.load_profile("rllm")
