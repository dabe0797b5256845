"""The cache: a layer's output for every image, and what the head needs of it."""

from hansfree.activations.cache import (
    Activations,
    CachePass,
    Pooling,
    Precision,
    along,
    at_every_position,
    channel_axis,
    collect,
    collect_activations,
    count_positions,
    cut_at,
    find_pairs,
    fingerprint_trunk,
    join,
    plan_pass,
    pool,
    random_signs,
    sum_positions,
)
from hansfree.activations.features import Features, FeatureSpec, Live, compute_features
from hansfree.activations.loading import read_batches
from hansfree.activations.shards import is_whole, live_tensors, shard_path, shard_ranges, write_shard
