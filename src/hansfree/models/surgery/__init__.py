"""Cut a model at a layer by data flow: trunk, phi and head; list layers, and put a module behind one."""

from hansfree.models.surgery.cut import HeadParts, Split, Stage, split
from hansfree.models.surgery.fast_trunk import folded, overwriting
from hansfree.models.surgery.forward_mode import check_device, exact_forward_mode, on_device
from hansfree.models.surgery.layers import Layer, insert_after, list_layers
from hansfree.models.surgery.layout import layer_order, layer_orders
from hansfree.models.surgery.linearised import Linearised
from hansfree.models.surgery.partition import Train
from hansfree.models.surgery.patterns import Patterned, Patterns
from hansfree.models.surgery.reach import box_around
from hansfree.models.surgery.tracing import Order, take_out

__all__ = [
    "HeadParts",
    "Layer",
    "Linearised",
    "Order",
    "Patterned",
    "Patterns",
    "Split",
    "Stage",
    "Train",
    "box_around",
    "check_device",
    "exact_forward_mode",
    "folded",
    "insert_after",
    "layer_order",
    "layer_orders",
    "list_layers",
    "on_device",
    "overwriting",
    "split",
    "take_out",
]
