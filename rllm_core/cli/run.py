"""`rllm run FILE`: whatever a run file describes."""

import click

from rllm_core.cli.options import Request, run_options

__all__ = ["run"]


@click.command()
@run_options(None)
def run(request: Request) -> int:
    """Run what a run file (TOML) describes; any of its keys can be changed behind it.

    rllm run examples/arithmetic.toml run.steps=20 --dry-run
    """
    from rllm_core.cli.execute import execute_request

    return execute_request(request)
