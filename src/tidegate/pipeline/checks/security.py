"""Checks of security: confidentiality, integrity, privacy, authentication.

They judge what the gate has recorded about the way of a message and its publisher. None of them decides whether
somebody may have a record: that is the gate's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

from tidegate.pipeline.checks import grade
from tidegate.pipeline.checks.registry import Duration, Evidence, check
from tidegate.pipeline.columns import F

if TYPE_CHECKING:
    from pyspark.sql import Column

ORDER: Final = ("plain", "tls", "mtls", "trusted")


@check(dimension=("confidentiality", "integrity", "authentication"), members=[("level", "order")])
def level_at_least(*, level: str, of: Literal["floor", "level"] = "floor", order: tuple[str, ...] = ORDER) -> Column:
    """How far up to `level` the protection reaches: 1 at it or above, 0 at the lowest, in equal steps between.

    `floor` is the lowest level on the way of the message, `level` that of the publisher's own connection. A level that
    `order` does not list counts as the lowest.
    """
    return _graded(level, of, order)


@check(dimension=("confidentiality", "privacy"), members=[("level", "order")])
def level_for_category(*, categories: tuple[str, ...], level: str, order: tuple[str, ...] = ORDER) -> Column:
    """As `level_at_least`, of records of these categories; nothing of others."""
    return F.when(F.col("category").isin(list(categories)), _graded(level, "floor", order))


@check(dimension="integrity")
def schema_in(*, schemas: tuple[str, ...]) -> Column:
    """1 if the record has one of these schemas, 0 if not."""
    return grade.yes(F.coalesce(F.col("schema").isin(list(schemas)), F.lit(False)))


@check(dimension="integrity", needs=[Evidence.HISTORY], ascending=[("good", "bad")])
def in_order(*, good: Duration = 1.0, bad: Duration = 60.0) -> Column:
    """1 if the record is measured at most `good` before the newest known of its source, 0 from `bad` on.

    What comes out of order may have been held back, or be an old message sent again.
    """
    newest = grade.seconds(F.col(f"{Evidence.HISTORY.value}.last_at"))
    return grade.falling(newest - grade.seconds(F.col("measured_at")), good, bad)


@check(dimension="privacy")
def category_in(*, good: tuple[str, ...], bad: tuple[str, ...] = ()) -> Column:
    """1 if the category is one of `good`, 0 if one of `bad`; nothing of other categories."""
    category = F.col("category")
    return F.when(category.isin(list(good)), F.lit(1.0)).when(category.isin(list(bad)), F.lit(0.0))


@check(dimension=("privacy", "authentication"))
def owner_known() -> Column:
    """1 if it is known whose data it is, so that this person's preferences hold; 0 if not."""
    return grade.yes(F.coalesce(F.col("owner") != "", F.lit(False)))


@check(dimension="privacy")
def no_personal_extra(*, names: tuple[str, ...]) -> Column:
    """1 if what is kept beside the value has no field of these names at any depth, 0 if it has; capitals are alike."""
    any_name = "|".join(re.escape(name) for name in names)
    # a quote that begins a field's name has no backslash before it; one inside a text has. Kept names may be pointers
    field = rf'(?iu)(?<!\\)"(?:[^"\\]*/)?(?:{any_name})"\s*:'
    return F.when(F.col("extra").isNull(), F.lit(1.0)).otherwise(grade.yes(~F.col("extra").rlike(field)))


@check(dimension="authentication")
def registered() -> Column:
    """1 if the source is registered, 0 if not."""
    return grade.yes(F.col("registered"))


@check(dimension=("authentication", "integrity"))
def source_is_client() -> Column:
    """1 if the source that the record names is the client that sent it, 0 if it is another."""
    return grade.yes(F.col("source") == F.col("client"))


def _graded(level: str, of: str, order: tuple[str, ...]) -> Column:
    wanted = order.index(level)
    held = F.col(of)
    graded = F.when(held.isNotNull(), F.lit(1.0 if wanted == 0 else 0.0))
    for rank, name in enumerate(order):
        graded = F.when(held == name, F.lit(1.0 if rank >= wanted else rank / wanted)).otherwise(graded)
    return graded
