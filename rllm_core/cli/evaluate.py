"""`rllm eval BENCHMARK…`."""

import click

from rllm_core.cli.options import Request, run_options

__all__ = ["evaluate"]


@click.command()
@run_options("eval")
def evaluate(request: Request) -> int:
    """Evaluate a model or an agent on one benchmark or several.

    rllm eval gsm8k --model openai/gpt-5-mini --attempts 4 --max 200

    rllm eval tasks.jsonl --scorer exact --harness my_agent:solver --model smollm2-135m
    """
    from rllm_core.cli.execute import execute_request

    return execute_request(request)
