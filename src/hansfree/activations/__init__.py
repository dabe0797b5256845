"""The cache: a layer's output for every image, and what the head needs of it."""

from hansfree.activations.cache import (
    Activations as Activations,
    CachePass as CachePass,
    Pooling as Pooling,
    Precision as Precision,
    along as along,
    at_every_position as at_every_position,
    channel_axis as channel_axis,
    collect as collect,
    collect_activations as collect_activations,
    count_positions as count_positions,
    cut_at as cut_at,
    find_pairs as find_pairs,
    fingerprint_trunk as fingerprint_trunk,
    join as join,
    plan_pass as plan_pass,
    pool as pool,
    random_signs as random_signs,
    sum_positions as sum_positions,
)
from hansfree.activations.features import (
    Features as Features,
    FeatureSpec as FeatureSpec,
    Live as Live,
    compute_features as compute_features,
)
from hansfree.activations.loading import read_batches as read_batches
from hansfree.activations.shards import (
    is_whole as is_whole,
    live_tensors as live_tensors,
    shard_path as shard_path,
    shard_ranges as shard_ranges,
    write_shard as write_shard,
)
