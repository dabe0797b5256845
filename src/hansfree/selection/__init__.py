"""Which strength is taken, by which rule, and which claims the data allow."""

from hansfree.selection.claims import Claim, claims
from hansfree.selection.selection import (
    BalancedRule,
    Choice,
    DerivativeRule,
    KneeRule,
    SelectionRule,
    StrengthPath,
    Validation,
    Validator,
    check_selectable,
    choose_rule,
    first_classes,
    has_enough,
    walk_path,
)

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
