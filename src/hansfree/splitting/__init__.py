"""Cut a model at a layer by data flow: trunk, phi and head; list layers, and put a module behind one."""

from hansfree.splitting.cut import Split, split
from hansfree.splitting.entry import HeadParts
from hansfree.splitting.forward_mode import exact_forward_mode
from hansfree.splitting.layers import Layer, insert_after, list_layers, take_out
from hansfree.splitting.layout import check_layout
from hansfree.splitting.overwriting import overwriting
from hansfree.splitting.partition import Train

__all__ = [
    "HeadParts",
    "Layer",
    "Split",
    "Train",
    "check_layout",
    "exact_forward_mode",
    "insert_after",
    "list_layers",
    "overwriting",
    "split",
    "take_out",
]
