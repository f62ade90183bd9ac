"""`rllm install` and `uninstall`: names, sources, and a whole round trip through pip."""

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rllm_core.errors import ConfigError
from rllm_core.plugins.installer import Installer, Source
from rllm_core.plugins.packages import requirement_of


def wheel(folder: Path, package: str, points: str = "") -> Path:
    """A wheel with one empty module."""
    module = package.replace("-", "_")
    info = f"{module}-1.0.dist-info"
    files = {
        f"{module}/__init__.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": points,
    }
    record = []
    path = folder / f"{module}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
            record.append(f"{name},sha256={digest.decode()},{len(text)}")
        archive.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]))
    return path


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("harness/codex", "rllm-harness-codex"),
        ("Harness/Claude_Code", "rllm-harness-claude-code"),
        ("rllm-harness-codex", "rllm-harness-codex"),
        ("rllm_backend_verl", "rllm-backend-verl"),
        ("backend/verl[fast]==0.1.0", "rllm-backend-verl[fast]==0.1.0"),
        ("harness/codex >=0.1, <0.2", "rllm-harness-codex>=0.1,<0.2"),
        ("rllm-core", "rllm-core"),
    ],
)
def test_what_a_name_stands_for(typed: str, wanted: str) -> None:
    assert requirement_of(typed) == wanted


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("codex", "which kind of plugin is 'codex'"),
        ("requests", "which kind of plugin is 'requests'"),
        ("rllm", "is not the name of a plugin's package"),
        ("rllm-evil", "is not the name of a plugin's package"),
        ("harnes/codex", "did you mean 'harness'"),
        ("harness/", "names no plugin"),
        ("acme/harness/codex", "names no plugin"),
        ("--index-url=http://evil", "is no name of a plugin"),
        ("harness/x @ http://evil", "is no name of a plugin"),
        ("git+https://evil", "is no name of a plugin"),
        ("rllm-harness-x; echo", "is no name of a plugin"),
        ("", "is no name of a plugin"),
    ],
)
def test_what_is_refused(typed: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        requirement_of(typed)


def test_a_bare_name_is_looked_up_in_folders(tmp_path) -> None:
    wheel(tmp_path, "rllm-harness-echo")
    assert requirement_of("echo", [str(tmp_path)]) == "rllm-harness-echo"
    wheel(tmp_path, "rllm-sandbox-echo")
    with pytest.raises(ConfigError, match="say rllm-harness-echo or rllm-sandbox-echo"):
        requirement_of("echo", [str(tmp_path)])


PIP = Installer("pip", ("python", "-m", "pip"), "python")
UV = Installer("uv", ("uv", "pip"), "python")


@pytest.mark.parametrize(
    ("source", "flags"),
    [
        (Source(), ""),
        (Source(links=("dist",)), "--no-index --find-links dist"),
        (Source("http://i/simple"), "--index-url http://i/simple"),
        (Source("http://i/simple", ("dist",)), "--index-url http://i/simple --find-links dist"),
    ],
)
def test_only_a_named_source_is_asked(source: Source, flags: str) -> None:
    assert " ".join(PIP.install(["x"], source)) == f"python -m pip install {flags} x".replace(
        "  ", " "
    )
    apart = "--no-config " if flags else ""
    wanted = f"uv pip install --python python {apart}{flags} --upgrade x".replace("  ", " ")
    assert " ".join(UV.install(["x"], source, upgrade=True)) == wanted


def test_no_other_index_is_left_in_the_environment(monkeypatch, tmp_path) -> None:
    settings = tmp_path / "pip.conf"
    settings.write_text("[global]\nextra-index-url = http://other\ntimeout = 7\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    for variable in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"):
        monkeypatch.setenv(variable, "http://evil")
    pip = Installer("pip", (sys.executable, "-m", "pip"))
    assert "http://evil" in pip.configured()
    named = Source("http://named")
    environ = pip.environment(named)
    assert "http://evil" not in {v for k, v in environ.items() if k.startswith("PIP_")}
    assert environ["PIP_CONFIG_FILE"] == os.devnull
    assert environ["PIP_TIMEOUT"] == "7"
    assert "http://evil" not in {v for k, v in UV.environment(named).items() if k.startswith("UV_")}
    assert pip.environment(Source())["PIP_INDEX_URL"] == "http://evil"


def test_passwords_are_not_shown(site_python) -> None:
    done = rllm(
        site_python, "install", "harness/x", "--index-url", "https://me:secret@i/s", "--dry-run"
    )
    assert done.returncode == 0
    assert "https://***@i/s, and nowhere else" in done.stderr
    assert "secret" not in done.stdout + done.stderr


@pytest.fixture(scope="module")
def site_python(tmp_path_factory) -> Path:
    """The interpreter of an environment of its own, which sees ours behind it."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    (packages,) = folder.glob("lib/python*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    root = Path(__file__).parents[2]
    (packages / "base.pth").write_text("\n".join([*map(str, ours), str(root)]))
    return folder / "bin/python"


def rllm(python: Path, *words: object) -> subprocess.CompletedProcess:
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [python, "-m", "rllm_core.cli", *map(str, words)],
        capture_output=True, text=True, check=False, timeout=120,
        env=environ | {"RLLM_HOME": str(python.parent / "home"), "COLUMNS": "200"},
    )  # fmt: skip


def test_there_and_back(site_python, tmp_path) -> None:
    wheel(tmp_path, "rllm-harness-echo", "[rllm.harnesses]\necho = rllm_harness_echo\n")
    done = rllm(site_python, "install", "echo", "--find-links", tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"pip install --no-index --find-links {tmp_path} rllm-harness-echo" in done.stderr
    assert f"from {tmp_path}, and nowhere else" in done.stderr
    assert "harness/echo 1.0  ok" in done.stdout
    assert rllm(site_python, "uninstall", "harness/echo").returncode == 0
    assert "rllm-harness-echo" not in rllm(site_python, "plugins").stdout


def test_what_cannot_be_installed_or_removed(site_python, tmp_path) -> None:
    done = rllm(site_python, "install", "harness/absent", "--find-links", tmp_path)
    assert done.returncode == 1
    assert "error: pip ended with 1" in done.stderr or "error: uv ended with 1" in done.stderr
    done = rllm(site_python, "uninstall", "absent")
    assert (done.returncode, "no plugin 'absent' is installed" in done.stderr) == (2, True)
    done = rllm(site_python, "uninstall", "react")
    assert (done.returncode, "belongs to rllm-core" in done.stderr) == (2, True)


@pytest.mark.parametrize(("line", "name"), [("uv = 0.9.1\n", "uv"), ("", "pip")])
def test_the_environment_says_whose_it_is(monkeypatch, tmp_path, line: str, name: str) -> None:
    (tmp_path / "pyvenv.cfg").write_text(f"home = /usr/bin\n{line}")
    (tmp_path / "uv").write_text("")
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Installer.here().name == name
