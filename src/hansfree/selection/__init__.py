"""Which strength is taken, by which rule, and which claims the data allow."""

from hansfree.selection.claims import Claim, claims
from hansfree.selection.path import StrengthPath, walk_path
from hansfree.selection.rules import (
    BalancedRule,
    Choice,
    DerivativeRule,
    KneeRule,
    SelectionRule,
    check_selectable,
    choose_rule,
)
from hansfree.selection.validator import Validation, Validator, first_classes, has_enough

__all__ = [
    "BalancedRule",
    "Choice",
    "Claim",
    "DerivativeRule",
    "KneeRule",
    "SelectionRule",
    "StrengthPath",
    "Validation",
    "Validator",
    "check_selectable",
    "choose_rule",
    "claims",
    "first_classes",
    "has_enough",
    "walk_path",
]
