"""Stage two: eight scores for each record, by the rules.

A score is the weighted mean of the checks that had something to say, and null if none had: never a made-up number. It
is a number in [0, 1] with six decimals, so that a batch that is repeated scores the same whatever the order in which
Spark adds. Rows with a fault have no scores. No row is dropped or doubled, and no column is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.pipeline import checks
from tidegate.pipeline.columns import DIMENSIONS, F, apart, remembered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from tidegate.pipeline.rules import Rules, Score

_STEPS: Final = 1e6
_TOGETHER: Final = 2  # dimensions that are compiled together


def score(frame: DataFrame, rules: Rules, *, baselines: DataFrame | None = None, single: bool = False) -> DataFrame:
    """The frame with `scores` and `rules_version`. `baselines` is the history before this batch.

    `single`: both are one partition each.
    """
    known = checks.gathered(frame, checks.needed(rules.scores), baselines, single=single)
    known = known.select("*", F.struct(*frame.columns).alias("_record"))  # is copied in one piece
    version = F.lit(rules.version_text).alias("rules_version")
    means = _means(rules.scores)
    for number in range(0, len(means), _TOGETHER):
        known = apart(known).select("*", *means[number : number + _TOGETHER])
    scores = F.struct(*(F.col(f"_{name}").alias(name) for name in DIMENSIONS)).alias("scores")
    return known.select(*(F.col("_record")[name].alias(name) for name in frame.columns), scores, version)


def needs_history(rules: Rules) -> bool:
    """Whether these rules read baselines, so that they have to be kept."""
    return checks.Evidence.HISTORY in checks.needed(rules.scores)


@remembered
def _means(rules: Sequence[Score]) -> list[Column]:
    return [_mean([rule for rule in rules if rule.dimension == name]).alias(f"_{name}") for name in DIMENSIONS]


def _mean(rules: Sequence[Score]) -> Column:
    if not rules:
        return F.lit(None).cast("double")
    heaviest = max(rule.weight for rule in rules)
    total, weights = F.lit(0.0), F.lit(0.0)
    for rule in rules:
        score = checks.column(rule)
        weight = F.lit(rule.weight / heaviest)
        total = total + F.coalesce(score * weight, F.lit(0.0))
        weights = weights + F.when(score.isNotNull(), weight).otherwise(F.lit(0.0))
    return F.rint(F.try_divide(total, weights) * F.lit(_STEPS)) / F.lit(_STEPS)
