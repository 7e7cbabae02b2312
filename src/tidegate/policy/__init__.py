"""What is allowed, and who said so: predicates (CEL), and the rules that are built from them.

Everything here is pure: time, randomness and the outside world come in as attributes.
"""

from __future__ import annotations

from tidegate.policy.access_policies import Action, Combining, Effect, OpenPolicies, Policies, Policy
from tidegate.policy.classify import Class, Classification
from tidegate.policy.demands import RELAXED, Demand
from tidegate.policy.directory import Directory, Entry
from tidegate.policy.environment import Environment, Moment
from tidegate.policy.levels import ORDER, Levels, Transport, ranking
from tidegate.policy.outcome import DEFAULT, Permit, Refuse, Undecided
from tidegate.policy.preferences import Applicable, Granted, Preference, Preferences
from tidegate.policy.selector import Selector, Term, Terms, terms_of
from tidegate.policy.subject import BUILT_IN, Paths, Subject, attributes_of, facets, paths_below
from tidegate.policy.template import Template, plain_filter
from tidegate.policy.trust_list import By, Close, Otherwise, Trust, judged
from tidegate.policy.views import ALL, NOTHING, Row, Table, View, Views

__all__ = [
    "ALL",
    "BUILT_IN",
    "DEFAULT",
    "NOTHING",
    "ORDER",
    "RELAXED",
    "Action",
    "Applicable",
    "By",
    "Class",
    "Classification",
    "Close",
    "Combining",
    "Demand",
    "Directory",
    "Effect",
    "Entry",
    "Environment",
    "Granted",
    "Levels",
    "Moment",
    "OpenPolicies",
    "Otherwise",
    "Paths",
    "Permit",
    "Policies",
    "Policy",
    "Preference",
    "Preferences",
    "Refuse",
    "Row",
    "Selector",
    "Subject",
    "Table",
    "Template",
    "Term",
    "Terms",
    "Transport",
    "Trust",
    "Undecided",
    "View",
    "Views",
    "attributes_of",
    "facets",
    "judged",
    "paths_below",
    "plain_filter",
    "ranking",
    "terms_of",
]
