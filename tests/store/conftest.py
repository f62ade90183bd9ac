"""Runs in a home of their own."""

import pytest

from rllm_core.store import RunStore


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty RLLM_HOME."""
    monkeypatch.setenv("RLLM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def create():
    """A function (directory, **what differs) → RunStore, closed at the end."""
    stores = []

    def make(directory, **given):
        facts = {"run_id": "7f3a", "kind": "eval", "name": None, "config_toml": "", "plugins": {}}
        stores.append(RunStore.create(directory, **{**facts, **given}))
        return stores[-1]

    yield make
    for store in stores:
        store.close()
