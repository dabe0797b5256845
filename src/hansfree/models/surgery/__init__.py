"""Cut a model at a layer by data flow: trunk, phi and head; list layers, and put a module behind one."""

from hansfree.models.surgery.cut import Cut as Cut, HeadParts as HeadParts, Stage as Stage, split as split
from hansfree.models.surgery.fast_trunk import fuse_for_inference as fuse_for_inference, make_inplace as make_inplace
from hansfree.models.surgery.forward_mode import (
    check_device as check_device,
    exact_forward_mode as exact_forward_mode,
    on_device as on_device,
)
from hansfree.models.surgery.graph import (
    Traced as Traced,
    eval_copy as eval_copy,
    operation_name as operation_name,
    returns_several as returns_several,
    scalar_nodes as scalar_nodes,
    trace as trace,
)
from hansfree.models.surgery.hooked import Unchanged as Unchanged, run_recorded as run_recorded
from hansfree.models.surgery.layers import Layer as Layer, insert_after as insert_after, list_layers as list_layers
from hansfree.models.surgery.layout import (
    CHANNEL_AXIS as CHANNEL_AXIS,
    layer_order as layer_order,
    layer_orders as layer_orders,
)
from hansfree.models.surgery.partition import Train as Train, output_node as output_node
from hansfree.models.surgery.tracing import (
    PROJECTION as PROJECTION,
    AppliedAfter as AppliedAfter,
    AxisOrder as AxisOrder,
    EditedForward as EditedForward,
    inverse as inverse,
    remove_inserted as remove_inserted,
)
