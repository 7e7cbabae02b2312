"""The rules of the pipeline: a YAML file and documents from the API, read and checked as one. Pure, without Spark."""

from __future__ import annotations

from tidegate.pipeline.rules.model import Form, Kind, Mapping, Rules, Score, Target, Time, Value
from tidegate.pipeline.rules.read import WrongRules, parse

__all__ = ["Form", "Kind", "Mapping", "Rules", "Score", "Target", "Time", "Value", "WrongRules", "parse"]
