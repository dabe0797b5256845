"""Which layer to correct a model at: every one scored in one pass, the best few tried, and the choice explained."""

from hansfree.layer_choice.choosing import LayerChoice, choose_layer
from hansfree.layer_choice.confirming import Trial
from hansfree.layer_choice.scoring import LayerScore

__all__ = ["LayerChoice", "LayerScore", "Trial", "choose_layer"]
