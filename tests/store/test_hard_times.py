"""A second writer, a kill at any moment, a full disk, files from elsewhere."""

import asyncio
import contextlib
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rllm_core.errors import ConfigError, StoreError
from rllm_core.store import RunStore
from rllm_core.store.schema import has_begun
from rllm_core.types import Episode, Step, Trajectory

WRITER = Path(__file__).with_name("writes_forever.py")


@contextlib.contextmanager
def writing(directory, batches=1):
    """Another process that writes the run; it has committed so many batch rows."""
    process = subprocess.Popen(
        [sys.executable, WRITER, directory], stdout=subprocess.PIPE, text=True
    )
    try:
        for _ in range(batches):
            assert process.stdout.readline(), "the writer died"
        yield process
    finally:
        process.kill()
        process.communicate()


def big(i):
    step = Step(f"s{i}", output_ids=range(20_000), logprobs=[-1.0] * 20_000)
    return Episode(f"e{i}", "t", i, (Trajectory(steps=(step,)),))


def test_a_run_is_read_while_another_process_writes_it(tmp_path):
    directory = tmp_path / "run"
    with writing(directory, batches=3):
        reader = RunStore.read(directory)
        before = list(reader.episodes())
        assert len(before) >= 12
        assert reader.info.status == "running"
        deadline = time.monotonic() + 20
        while sum(1 for _ in reader.attempts()) <= len(before):
            assert time.monotonic() < deadline, "the reader sees nothing new"
            time.sleep(0.05)
        assert [e.id for e in reader.episodes()][: len(before)] == [e.id for e in before]
        reader.close()


def test_a_second_writer_is_refused_and_told_who_writes(tmp_path):
    directory = tmp_path / "run"
    with writing(directory) as process:
        with pytest.raises(ConfigError, match=f"process {process.pid} on .* is writing the run"):
            RunStore.resume(directory)
        with pytest.raises(ConfigError, match="is writing the run"):
            RunStore.create(
                directory, run_id="1", kind="eval", name=None, config_toml="", plugins={}
            )


def test_looking_at_a_run_does_not_keep_its_writer_out(tmp_path, create):
    store = create(tmp_path / "run")
    store.close()
    reader = RunStore.read(store.directory)
    assert reader.info.status == "killed"
    resumed = RunStore.resume(store.directory)
    resumed.set_status("finished")
    resumed.close()
    assert reader.info.status == "finished"
    reader.close()


@pytest.mark.parametrize("seed", range(6))
def test_a_kill_at_any_moment_leaves_a_readable_run(tmp_path, seed):
    directory = tmp_path / "run"
    wait = random.Random(seed)
    process = subprocess.Popen(
        [sys.executable, WRITER, directory], stdout=subprocess.PIPE, text=True
    )
    if seed:  # otherwise at any moment of starting
        process.stdout.readline()
    time.sleep(wait.uniform(0, 0.4))
    process.send_signal(signal.SIGKILL)
    printed = process.communicate()[0].split()
    if not seed and not has_begun(directory / "run.db"):
        return
    reader = RunStore.read(directory)
    episodes = list(reader.episodes())
    rows = list(reader.batches())
    assert [e.id for e in episodes] == [f"e{i}" for i in range(len(episodes))]
    assert len(rows) >= (int(printed[-1]) + 1 if printed else 0)
    assert len(episodes) >= 4 * len(rows)
    assert reader.info.status == "killed"
    assert reader.info.config_toml == "x = 1\n"
    reader.close()
    resumed = RunStore.resume(directory)
    assert resumed.info.status == "running"
    assert len(resumed.finished("train")) == len(episodes)
    resumed.close()


async def fill(store):
    """Put until the store refuses."""
    with pytest.raises(StoreError) as raised:
        for i in range(400):
            store.add_episode("eval", 0, i, big(i))
            if i % 4 == 3:
                await store.flush()
    with pytest.raises(StoreError):
        store.close()
    return raised.value


@pytest.fixture
def small_disk(tmp_path):
    """A file system of three megabytes."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this machine refuses mounts")
    yield disk
    subprocess.run(["umount", disk], check=True)


async def test_a_full_disk_is_one_sentence_and_loses_nothing(small_disk, create):
    store = create(small_disk / "run")
    error = await fill(store)
    assert "the disk is full" in error.message
    assert "everything up to here is kept" in error.message
    assert "--resume" in error.remedy
    reader = RunStore.read(store.directory)
    kept = list(reader.episodes())
    assert len(kept) >= 4
    assert kept == [big(i) for i in range(len(kept))]
    reader.close()
    with pytest.raises(StoreError, match="the disk is full"):
        create(small_disk / "another", config_toml="x" * 10**7)
    grow = ["mount", "-o", "remount,size=20m", small_disk]
    await asyncio.to_thread(subprocess.run, grow, check=True)
    resumed = RunStore.resume(store.directory)
    assert len(resumed.finished("eval")) == len(kept)
    resumed.close()


def test_a_run_on_a_read_only_medium_is_read(small_disk, create):
    store = create(small_disk / "run")
    store.add_episode("eval", 0, 0, big(0))
    store.close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    reader = RunStore.read(store.directory)
    assert list(reader.episodes()) == [big(0)]
    assert reader.info.status == "killed"
    reader.close()
    with pytest.raises(ConfigError, match=r"cannot be written: Read-only[\s\S]*--run-dir"):
        create(small_disk / "another")
    with pytest.raises(ConfigError, match=r"cannot be written: Read-only[\s\S]*--run-dir"):
        RunStore.resume(store.directory)


async def test_a_file_that_may_not_grow_is_one_sentence_and_loses_nothing(tmp_path, create):
    store = create(tmp_path / "run")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, hard))
    try:
        error = await fill(store)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "everything up to here is kept" in error.message
    resumed = RunStore.resume(store.directory)
    kept = list(resumed.episodes())
    assert kept == [big(i) for i in range(len(kept))]
    assert len(kept) >= 4
    resumed.add_episode("eval", 0, 999, big(999))
    await resumed.flush()
    assert len(resumed.finished("eval")) == len(kept) + 1
    resumed.close()


def test_a_directory_that_holds_a_run_or_other_files_is_refused(tmp_path, create):
    store = create(tmp_path / "run")
    store.close()
    with pytest.raises(ConfigError, match=r"already holds a run[\s\S]*--resume"):
        create(tmp_path / "run")
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("precious")
    with pytest.raises(ConfigError, match=r"not empty and holds no run.*thesis"):
        create(other)
    with pytest.raises(ConfigError, match="there is no run in"):
        RunStore.resume(other)
    with pytest.raises(ConfigError, match="there is no run in"):
        RunStore.read(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written: Not a directory"):
        create(tmp_path / "file" / "run")
    assert not (tmp_path / "nowhere").exists()


def test_a_run_that_was_killed_before_it_began_is_written_over(tmp_path, create):
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "config.toml").write_text("half")
    (directory / "run.db").write_bytes(b"")
    with pytest.raises(ConfigError, match="there is no run in"):
        RunStore.resume(directory)
    assert create(directory, config_toml="whole").info.config_toml == "whole"


def test_a_run_of_a_newer_version_is_refused_with_the_remedy(tmp_path, create):
    store = create(tmp_path / "run")
    store.close()
    database = sqlite3.connect(store.directory / "run.db")
    database.execute("PRAGMA user_version = 99")
    database.close()
    for opened in (RunStore.read, RunStore.resume):
        with pytest.raises(ConfigError, match=r"newer rllm-core.*99[\s\S]*--upgrade rllm-core"):
            opened(store.directory)


def test_a_file_that_is_no_database_is_one_sentence(tmp_path):
    (tmp_path / "run.db").write_bytes(b"not a database at all, certainly" * 40)
    with pytest.raises(ConfigError, match="cannot be read: file is not a database"):
        RunStore.read(tmp_path)


async def test_a_closed_run_says_so(tmp_path, create):
    store = create(tmp_path / "run")
    store.close()
    store.close()
    with pytest.raises(StoreError, match="has been closed"):
        store.add_event("note", "late")
    with pytest.raises(StoreError, match="has been closed"):
        await store.flush()
