"""The table backend keeps to what it is used to test."""

from rllm_core.testing import BackendConformance
from rllm_core.testing.backend import TableBackend


class TestTable(BackendConformance):
    backend = TableBackend
