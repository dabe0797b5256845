"""Cut a model at a layer by data flow: trunk, phi and head; list layers, and put a module behind one."""

from hansfree.models.surgery.cut import Cut, HeadParts, Stage, split
from hansfree.models.surgery.fast_trunk import fuse_for_inference, make_inplace
from hansfree.models.surgery.forward_mode import check_device, exact_forward_mode, on_device
from hansfree.models.surgery.graph import Traced, eval_copy, operation_name, returns_several, scalar_nodes, trace
from hansfree.models.surgery.hooked import Unchanged, run_recorded
from hansfree.models.surgery.layers import Layer, insert_after, list_layers
from hansfree.models.surgery.layout import CHANNEL_AXIS, layer_order, layer_orders
from hansfree.models.surgery.partition import Train, output_node
from hansfree.models.surgery.tracing import PROJECTION, AppliedAfter, AxisOrder, EditedForward, inverse, remove_inserted
