"""Scoring: what turns an episode's output into a number, or into the reason there is none.

A scorer is a function `(task, episode)` or `(task, episode, ctx)`, sync or async, that returns
a number, a bool, a `Score` or a `Missing`:

    @rllm.evaluator
    def exact(task, episode) -> float:
        return float(episode.output.strip() == task.private["answer"])

`--scorer` names one by reference (`module:object`) or a built-in one (`exact`, `contains`,
`number`), and then stands in for the benchmark's own. `numbers` and `text` hold what the
benchmarks share.
"""

from rllm_core.scoring.scorer import Scorer, evaluator, load_scorer

__all__ = ["Scorer", "evaluator", "load_scorer"]
