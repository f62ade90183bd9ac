"""One GRPO step of the local backend beside TRL's: same model, task, batch and settings.

    python tests/perf/local_step_vs_trl.py [--steps 3] [--venv DIRECTORY] [--mode full|lora]

The task is `opposite_few` (a word's opposite after three solved examples), 4 prompts × 8
completions of at most 8 tokens, learning rate 1e-5, clip 0.2 / 0.28, no KL. TRL runs with its
defaults otherwise, in a virtual environment of its own that this script makes. The figure is
CPU-seconds of all processes, start and loading excluded: it holds on a busy machine too.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROMPTS, GROUP, MAX_NEW, RATE, CLIP = 4, 8, 8, 1e-5, (0.2, 0.28)
PEER = ("torch==2.13.0", "transformers==5.24.0", "trl==1.16.0", "accelerate==1.15.0")
PEER += ("datasets==5.2.0",)
OPPOSITES = dict(
    pair.split(":")
    for pair in [
        "hot:cold",
        "big:small",
        "up:down",
        "day:night",
        "fast:slow",
        "wet:dry",
        "happy:sad",
        "old:new",
        "high:low",
        "left:right",
        "black:white",
        "open:closed",
        "rich:poor",
        "hard:soft",
        "full:empty",
        "good:bad",
        "early:late",
        "strong:weak",
        "light:dark",
        "long:short",
    ]
)
RULE = "Answer exactly in the form of the examples."
Example = tuple[list[dict[str, str]], str]


def opposite_few(seed: int) -> Iterator[Example]:
    """Endless (messages, answer)."""
    source = random.Random(seed)
    shown = random.Random(99).sample(sorted(OPPOSITES), 3)
    start = [{"role": "system", "content": RULE}]
    for word in shown:
        start += [_question(word), {"role": "assistant", "content": OPPOSITES[word]}]
    while True:
        word = source.choice(sorted(OPPOSITES))
        yield [*start, _question(word)], OPPOSITES[word]


def _question(word: str) -> dict[str, str]:
    text = f"What is the opposite of '{word}'? Reply with one word."
    return {"role": "user", "content": text}


def reward(text: str, answer: str) -> float:
    """1 for the word and nothing else."""
    return float(text.strip().rstrip(".").lower() == answer)


async def ours(steps: int, mode: str) -> list[float]:
    """CPU-seconds of each step of the local backend: worker and this process."""
    from rllm_backend_local import LocalBackend, Options
    from rllm_backend_local.testing import complete_all, make_batch, standardised

    from rllm_core.algorithms.losses import LossSpec, PPOClip
    from rllm_core.backend import ModelSpec, OptimParams

    backend, spent = LocalBackend(Options(mode=mode)), []
    try:
        await backend.start()
        loaded = await backend.model("policy", ModelSpec("smollm2-135m"))
        model, pid = loaded.model, loaded.model.worker.process.pid
        upstream, tasks = await model.publish(0), opposite_few(1000)
        for step in range(steps):
            before = _cpu(pid)
            chosen = [next(tasks) for _ in range(PROMPTS)]
            rendered = [_ids(loaded.renderer, messages) for messages, _ in chosen]
            prompts = [ids for ids in rendered for _ in range(GROUP)]
            replies = await complete_all(upstream, prompts, seed=step, max_tokens=MAX_NEW)
            rewards = [
                reward(loaded.renderer.parse_response(r.ids).content or "", chosen[i // GROUP][1])
                for i, r in enumerate(replies)
            ]
            batch = make_batch(prompts, replies, standardised(rewards, GROUP))
            await model.forward_backward(batch, LossSpec(PPOClip(*CLIP)))
            await model.optim_step(OptimParams(RATE))
            upstream = await model.publish(step + 1)
            spent.append(_cpu(pid) - before)
    finally:
        await backend.close()
    return spent


def _ids(renderer: Any, messages: list[dict[str, str]]) -> list[int]:
    return list(renderer.render_ids(messages, add_generation_prompt=True))


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def theirs(model: str, steps: int, mode: str) -> None:
    """Run TRL (in its own interpreter) and print CPU-seconds of each step as JSON."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    tasks = opposite_few(1000)
    items = [next(tasks) for _ in range(steps * PROMPTS)]
    rows = [{"prompt": messages, "answer": answer} for messages, answer in items]
    spent: list[float] = []

    class Clock(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.last = time.process_time()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            now = time.process_time()
            spent.append(now - self.last)
            self.last = now

    def graded(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
        texts = (c if isinstance(c, str) else c[0]["content"] for c in completions)
        return [reward(t, a) for t, a in zip(texts, answer, strict=True)]

    lora = None
    if mode == "lora":
        from peft import LoraConfig

        lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear")
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=True,
            per_device_train_batch_size=PROMPTS * GROUP,
            num_generations=GROUP,
            max_completion_length=MAX_NEW,
            temperature=1.0,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            adam_beta2=0.99,
            weight_decay=0.0,
            beta=0.0,
            epsilon=CLIP[0],
            epsilon_high=CLIP[1],
            num_iterations=1,
            max_steps=steps,
            report_to=[],
            save_strategy="no",
            gradient_checkpointing=False,
            shuffle_dataset=False,
            dataloader_pin_memory=False,
            disable_tqdm=True,
            optim="adamw_torch_fused",
        )
        GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
            reward_funcs=graded,
            args=config,
            train_dataset=Dataset.from_list(rows),
            processing_class=AutoTokenizer.from_pretrained(model),
            callbacks=[Clock()],
            peft_config=lora,
        ).train()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"cpu_s": spent, "peak_mb": peak}))


def peer(venv: Path, mode: str) -> Path:
    """TRL's interpreter; made on first use (torch and friends, about 1 GB)."""
    python = venv / "bin" / "python"
    if not python.exists():
        print(f"making {venv} with {', '.join(PEER)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=300)
    wanted = (*PEER, "peft") if mode == "lora" else PEER
    install = [str(python), "-m", "pip", "install", "--quiet", *wanted]
    subprocess.run(install, check=True, timeout=1800)
    return python


def main() -> None:
    """Measure both and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--mode", choices=("full", "lora"), default="full")
    parser.add_argument("--venv", type=Path, default=Path("~/.cache/rllm-perf/trl").expanduser())
    parser.add_argument("--trl", metavar="MODEL", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.trl:
        theirs(asked.trl, asked.steps, asked.mode)
        return
    from rllm_backend_local.models import find

    place = asyncio.run(find("smollm2-135m", 1800))
    python = peer(asked.venv, asked.mode)
    mine = asyncio.run(ours(asked.steps, asked.mode))
    command = [str(python), "-W", "ignore", __file__, "--trl", str(place.path)]
    command += ["--steps", str(asked.steps), "--mode", asked.mode]
    # Passive waiting: else the figure counts threads that spin.
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=1800, check=False
    )
    if done.returncode != 0:
        sys.exit(f"TRL failed:\n{done.stderr[-3000:]}")
    other = json.loads(done.stdout.strip().splitlines()[-1])["cpu_s"]
    for name, spent in (("local", mine), ("TRL 1.16.0", other)):
        steps = "  ".join(f"{s:6.2f}" for s in spent)
        print(f"{name:>11}  CPU-seconds a step: {steps}   sum {sum(spent):7.2f}")
    print(f"TRL / local: {sum(other) / sum(mine):.1f}")


if __name__ == "__main__":
    main()
