"""`rllm train BENCHMARK`."""

import click

from rllm_core.cli.options import Request, run_options

__all__ = ["train"]


@click.command()
@run_options("train")
def train(request: Request) -> int:
    """Train a model on a benchmark, with the agent that will use it.

    rllm train arithmetic --model smollm2-135m run.steps=40
    """
    from rllm_core.cli.execute import execute_request

    return execute_request(request)
