"""Rows of the hub, through the real `datasets` against a small hub of our own."""

import io
import os
import subprocess
import sys

import pytest

REVISION, OTHER = "a1" * 20, "b2" * 20
CARD = b"""---
configs:
- config_name: main
  data_files:
  - split: test
    path: main/test-*
---
"""
READ = """
import sys
from rllm_core.benchmark import HubRows
from rllm_core.errors import ConfigError
try:
    for located in HubRows("acme/sums", config="main", revision=sys.argv[1], licence="MIT").rows("test"):
        print(located.place, located.row)
except ConfigError as error:
    print("refused:", error)
"""


@pytest.fixture
def hub(hub_of):
    pytest.importorskip("datasets")
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    stream = io.BytesIO()
    table = pa.table({"question": ["1+1?", "2+2?"], "answer": ["#### 2", "#### 4"]})
    parquet.write_table(table, stream)
    files = {"README.md": CARD, "main/test-00000-of-00001.parquet": stream.getvalue()}
    return hub_of("acme/sums", REVISION, files)


def read(home, revision=REVISION, **env):
    """What a process of its own reads: `datasets` takes its settings when it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", READ, revision],
        env={**os.environ, "HF_HOME": str(home / "hf"), **env},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout


def test_the_pinned_revision_is_fetched_once_and_then_read_offline(hub, tmp_path):
    rows = "acme/sums test row 1 {'question': '2+2?', 'answer': '#### 4'}"
    assert rows in read(tmp_path, HF_ENDPOINT=hub.url)
    assert all(REVISION in path for path in hub.asked if "sums" in path)
    assert rows in read(tmp_path, HF_HUB_OFFLINE="1")
    # The library would fall back to the revision that it has.
    other = read(tmp_path, OTHER, HF_HUB_OFFLINE="1")
    assert "only another revision is in the library's cache" in other


def test_offline_and_not_cached_says_what_to_do(tmp_path):
    said = read(tmp_path, HF_HUB_OFFLINE="1")
    assert "refused: acme/sums (revision a1a1a1a1a1a1, split test) could not be loaded" in said
    assert "benchmark.file=PATH" in said


def test_a_directory_of_the_same_name_is_not_taken_for_the_hub(tmp_path):
    folder = tmp_path / "acme" / "sums"
    folder.mkdir(parents=True)
    (folder / "test.jsonl").write_text('{"question": "?", "answer": "#### 0"}')
    assert "refused: `datasets` would read the directory" in read(tmp_path, HF_HUB_OFFLINE="1")
