"""The `rllm` command: a group whose commands are imported when they are called.

`main` is the frame around every command: it turns errors into a sentence with a remedy and an
exit code, and sees to it that output survives any locale.
"""

from rllm_core.cli.frame import main

__all__ = ["main"]
