"""Checks: named functions that score a record, chosen and parametrised by the rules.

`problems` says what is wrong with a rule and needs no Spark; `column` makes its column. To add a check, write a
function in `quality` or `security` under `@check`; its signature and docstring are its documentation (`listed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tidegate.config.problems import remedy
from tidegate.errors import PipelineError
from tidegate.pipeline import conditions
from tidegate.pipeline.checks import quality, security
from tidegate.pipeline.checks.evidence import gathered
from tidegate.pipeline.checks.registry import REGISTRY, Check, Evidence, check
from tidegate.pipeline.columns import DIMENSIONS, F

if TYPE_CHECKING:
    from pyspark.sql import Column

    from tidegate.pipeline.rules import Score

__all__ = ["Check", "Evidence", "check", "column", "gathered", "listed", "needed", "problems"]

_MODULES = (quality, security)  # imported for what they register


def problems(score: Score) -> Iterator[str]:
    """What is wrong with a rule's dimension, check, arguments and filter, each with its remedy."""
    if score.dimension not in DIMENSIONS:
        mend = remedy(score.dimension, DIMENSIONS, f"there is {', '.join(DIMENSIONS)}")
        yield f"there is no dimension `{score.dimension}`; {mend}"
    known = REGISTRY.get(score.check)
    if known is None:
        mend = remedy(score.check, REGISTRY, f"there is {', '.join(sorted(REGISTRY))}")
        yield f"there is no check `{score.check}`; {mend}"
    else:
        if score.dimension in DIMENSIONS and score.dimension not in known.dimensions:
            judged = " and ".join(known.dimensions)
            yield f"`{known.name}` judges {judged}, not {score.dimension}; write `dimension: {known.dimensions[0]}`"
        yield from known.problems(score.args)
    if score.filter is not None:
        for problem in conditions.problems(score.filter):
            yield f"filter: {problem}"


def column(score: Score) -> Column:
    """The scores of a rule: between 0 and 1, or null where the filter does not fit or there is nothing to say."""
    wrong = tuple(problems(score))
    if wrong:
        raise PipelineError("; ".join(wrong))
    # Spark takes NaN for the largest number and passes over null, so both go before the bounds are applied
    score_column = F.nanvl(REGISTRY[score.check](score.args), F.lit(None).cast("double"))
    bounded = F.when(score_column.isNotNull(), F.least(F.greatest(score_column, F.lit(0.0)), F.lit(1.0)))
    applies = F.col("fault").isNull()
    if score.filter is not None:
        applies = applies & conditions.fits(score.filter)
    return F.when(applies, bounded)


def needed(scores: Iterable[Score]) -> frozenset[Evidence]:
    return frozenset().union(*(REGISTRY[score.check].needs for score in scores))


def listed() -> tuple[Check, ...]:
    """Every check, by dimension and name: for the documentation."""
    return tuple(sorted(REGISTRY.values(), key=lambda each: (DIMENSIONS.index(each.dimensions[0]), each.name)))
