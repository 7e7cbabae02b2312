"""What is allowed, and who said so: predicates (CEL), and the rules that are built from them.

Everything here is pure: time, randomness and the outside world come in as attributes.
"""

from __future__ import annotations

from tidegate.policy.access import Action, Combining, Effect, Policies, Policy
from tidegate.policy.actor import BUILT_IN, Actor, attributes_of, facets, shown
from tidegate.policy.selector import Selector, Term, terms_of
from tidegate.policy.template import Template
from tidegate.policy.verdict import DEFAULT, Open, Permit, Refuse

__all__ = [
    "BUILT_IN",
    "DEFAULT",
    "Action",
    "Actor",
    "Combining",
    "Effect",
    "Open",
    "Permit",
    "Policies",
    "Policy",
    "Refuse",
    "Selector",
    "Template",
    "Term",
    "attributes_of",
    "facets",
    "shown",
    "terms_of",
]
