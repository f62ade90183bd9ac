"""`python -m rllm_core.cli`: the `rllm` command without its console script."""

from rllm_core.cli.frame import main

main()
