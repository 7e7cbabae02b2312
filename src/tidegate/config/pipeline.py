"""The data pipeline, in the configuration: what it takes in, by which rules, and where it keeps what comes out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import BeforeValidator, Field

from tidegate import topics
from tidegate.config.problems import Finding, refusal, requires
from tidegate.config.section import FilePath, Section
from tidegate.config.units import Count, Duration, Switch

if TYPE_CHECKING:
    from tidegate.config.model import Config

LOCAL: Final = "local[*]"
IngestFilter = Annotated[
    str,
    requires(
        lambda filter: topics.valid_filter(filter) and not filter.startswith("$"),
        "must be a topic filter that does not begin with `$`; write for example `raw/#`",
    ),
]


def _refuse_url(written: object) -> object:
    """A path would take `s3://bucket` for a local folder with a strange name."""
    if isinstance(written, str) and "://" in written:
        raise refusal(f"cannot be {written}: a lake is a folder of a file system; object storage is not supported yet")
    return written


LakeFolder = Annotated[FilePath, BeforeValidator(_refuse_url)]


class Table(Section):
    """A table of the lake."""

    keep: Duration | None = Field(default=None, gt=0)
    """How long its rows are kept, in whole days of UTC. Default: for ever."""


class Tables(Section):
    """How long the rows of each table are kept."""

    raw: Table = Field(default_factory=Table)
    """What came in, as it came."""
    normalised: Table = Field(default_factory=Table)
    """One row for each value that was measured, with its scores."""
    quarantine: Table = Field(default_factory=Table)
    """What fitted no mapping, with the reason."""
    audit: Table = Field(default_factory=Table)
    """Decisions of the node."""
    quality_daily: Table = Field(default_factory=Table)
    """Scores by day, source and dimension."""


class Spark(Section):
    """Where the pipeline runs."""

    master: str = LOCAL
    """`local[*]`: in one process on this machine, on all cores. `spark://HOST:PORT`: on a cluster; journal and lake are
    then on storage that all of it can reach."""
    memory: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}[mg]$")] = "1g"
    """Memory of the driver, such as `512m` or `2g`."""
    conf: dict[str, str] = Field(default_factory=dict)
    """More settings of Spark, by their own names."""


class Pipeline(Section):
    """The data pipeline on Spark (`tidegate pipeline run`)."""

    ingest: tuple[IngestFilter, ...] = ()
    """Topics whose messages are recorded for the pipeline before they are acknowledged. What sources send to
    `POST /data` is recorded anyway."""
    rules: FilePath | None = None
    """The file with mappings, scores and topics. It is read again when it changes."""
    lake: LakeFolder | None = None
    """The folder for tables. Default: `lake` in the data folder."""
    trigger: Duration = Field(default=1.0, ge=0.1, le=3600.0)
    """How often a batch begins, at most."""
    batch: Count = Field(default=250_000, ge=1, le=10_000_000)
    """Messages in one batch, at most."""
    patience: Duration = Field(default=60.0, ge=0, le=86_400.0)
    """How long publishing waits for a subscriber whose queue is full. One that has not taken a tenth of its queue by
    then loses records while its queue is full."""
    audit: Switch = True
    """Whether the audit is copied to the lake, too."""
    tables: Tables = Field(default_factory=Tables)
    """How long the rows of each table are kept."""
    spark: Spark = Field(default_factory=Spark)
    """Where it runs."""


def problems(config: Config) -> Iterator[Finding]:
    """A pipeline without a data folder."""
    if config.pipeline is not None and config.node.data is None:
        yield ("pipeline",), "needs a folder for the journal; set `node.data`"
