"""What is allowed, and who said so: predicates (CEL), and the rules that are built from them.

Everything here is pure: time, randomness and the outside world come in as attributes.
"""

from __future__ import annotations

from tidegate.policy.access import Action, Combining, Effect, Policies, Policy
from tidegate.policy.actor import BUILT_IN, Actor, Paths, attributes_of, facets, paths_below, shown
from tidegate.policy.classify import Class, Classification
from tidegate.policy.directory import Directory, Entry, Known
from tidegate.policy.environment import Environment, Moment
from tidegate.policy.levels import RELAXED, Demand, Facts, Levels
from tidegate.policy.preferences import Applicable, Granted, Preference, Preferences
from tidegate.policy.selector import Selector, Term, Terms, terms_of
from tidegate.policy.template import Template, plain_filter
from tidegate.policy.trust import By, Close, Degraded, Otherwise, Trust, Trusted, judged
from tidegate.policy.verdict import DEFAULT, Permit, Refuse, Undecided
from tidegate.policy.views import ALL, NOTHING, Row, Seen, Table, View, Views, intersected, united

__all__ = [
    "ALL",
    "BUILT_IN",
    "DEFAULT",
    "NOTHING",
    "RELAXED",
    "Action",
    "Actor",
    "Applicable",
    "By",
    "Class",
    "Classification",
    "Close",
    "Combining",
    "Degraded",
    "Demand",
    "Directory",
    "Effect",
    "Entry",
    "Environment",
    "Facts",
    "Granted",
    "Known",
    "Levels",
    "Moment",
    "Otherwise",
    "Paths",
    "Permit",
    "Policies",
    "Policy",
    "Preference",
    "Preferences",
    "Refuse",
    "Row",
    "Seen",
    "Selector",
    "Table",
    "Template",
    "Term",
    "Terms",
    "Trust",
    "Trusted",
    "Undecided",
    "View",
    "Views",
    "attributes_of",
    "facets",
    "intersected",
    "judged",
    "paths_below",
    "plain_filter",
    "shown",
    "terms_of",
    "united",
]
