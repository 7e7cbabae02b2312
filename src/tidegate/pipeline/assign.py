"""Stage three: the topic that a record is published under, by templates.

The first template whose type and condition fit counts. What a template names goes into the topic as it is, so a value
that would make other levels or wildcards, or is empty, makes no topic: the record is kept but not published. Nor does
anything become a `$` topic, and nothing one that is longer than MQTT has room for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tidegate.pipeline import conditions
from tidegate.pipeline.columns import F, remembered
from tidegate.pipeline.rules import PLACEHOLDERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from tidegate.pipeline.rules import Rules, Target

_PLACE: Final = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")
_FORBIDDEN: Final = "[/+#\\x00]"
_MAX_TOPIC: Final = 65_535  # bytes: two bytes of length


def assign(frame: DataFrame, rules: Rules) -> DataFrame:
    """The frame with `target`, null where a record is not to be published."""
    return frame.withColumn("target", _target(rules.topics))


@remembered
def _target(targets: Sequence[Target]) -> Column:
    return F.when(F.col("fault").isNull(), _first(targets))


def _first(targets: Sequence[Target]) -> Column:
    topic = F.lit(None).cast("string")
    for target in reversed(targets):
        topic = F.when(_fits(target), _topic(target.topic)).otherwise(topic)
    return topic


def _fits(target: Target) -> Column:
    fits = F.col("type").isin(list(target.types)) if target.types else F.lit(True)
    return fits if target.filter is None else fits & conditions.fits(target.filter)


def _topic(template: str) -> Column:
    """The topic, or null if a value that it names does not do."""
    pieces = _PLACE.split(template)
    texts, sound = pieces[::2], F.lit(True)
    parts: list[Column] = [F.lit(texts[0])]
    for name, text in zip(pieces[1::2], texts[1:], strict=True):
        value = F.col(name)
        sound = sound & (value != "") & ~value.rlike(_FORBIDDEN)
        parts += [value, F.lit(text)]
    topic = F.concat(*parts)
    return F.when(sound & ~topic.startswith("$") & (F.octet_length(topic) <= _MAX_TOPIC), topic)
