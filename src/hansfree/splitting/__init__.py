"""Cut a model at a layer by data flow: trunk, phi and head; list layers, and put a module behind one."""

from hansfree.splitting.cut import Split, split
from hansfree.splitting.devices import check_device, on_device
from hansfree.splitting.folded import folded
from hansfree.splitting.forward_mode import exact_forward_mode
from hansfree.splitting.inserted import take_out
from hansfree.splitting.layers import Layer, insert_after, list_layers
from hansfree.splitting.layout import layer_order, layer_orders
from hansfree.splitting.linearised import Linearised
from hansfree.splitting.orders import Order
from hansfree.splitting.overwriting import overwriting
from hansfree.splitting.partition import Train
from hansfree.splitting.patterns import Patterned, Patterns
from hansfree.splitting.reach import box_around
from hansfree.splitting.stages import HeadParts, Stage

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
