"""`rllm init` and `rllm plugins new` as commands, and the projects that they write."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from rllm_core.cli.group import rllm
from rllm_core.errors import ConfigError
from rllm_core.scaffold import PROJECTS, new_project


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(rllm, words, catch_exceptions=False)


def test_init_names_what_it_wrote_and_what_is_next(invoke, tmp_path):
    done = invoke("init", "my-project")
    assert done.exit_code == 0
    assert "wrote my-project/agent.py\n" in done.output
    assert "next: cd my-project && python -m pytest" in done.output
    assert (tmp_path / "my-project/run.toml").read_text().startswith("# rllm run run.toml")


def test_new_takes_a_directory(invoke, tmp_path):
    done = invoke("plugins", "new", "harness", "mine", "--directory", "elsewhere/mine")
    assert done.exit_code == 0
    assert (tmp_path / "elsewhere/mine/rllm_harness_mine/__init__.py").is_file()


def test_a_template_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no template 'chat'") as caught:
        new_project("mine", "chat", tmp_path / "mine")
    assert all(template in caught.value.remedy for template in PROJECTS)


@pytest.mark.slow
@pytest.mark.parametrize("template", PROJECTS)
def test_a_projects_own_tests_pass(template, tmp_path):
    project = new_project("mine", template, tmp_path / "mine")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, cwd=project, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
