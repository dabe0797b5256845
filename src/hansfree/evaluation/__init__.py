"""What a model does with and without the artifact, and what that means."""

from hansfree.evaluation.data_checks import BIASED_ACCURACY, WORST_GROUP, claims
from hansfree.evaluation.evaluate import (
    HeldOutFeatures,
    SideEffects,
    State,
    held_out_features,
    judge_head,
    measure_positions,
    measure_side_effects,
    probed_images,
)
from hansfree.evaluation.forgetting import (
    Forgetting,
    Probe,
    Relearning,
    RelearningCurve,
    probe_artifact,
    relearn,
    reset_head,
)
from hansfree.evaluation.heatmaps import artifact_relevance
from hansfree.evaluation.localisation import compute_cav_heatmaps, masks_from_heatmaps
from hansfree.evaluation.results import (
    CLEAN_TRAINED,
    FIRST,
    ORIGINAL,
    REFERENCES,
    HeatmapSet,
    Results,
    Row,
    Variant,
    load_results,
    method_title,
    read_rows,
    row_of_quality,
    rows_of,
    takes_out_direction,
    tested_rows,
    validated_rows,
    write_table,
)
from hansfree.evaluation.verdict import (
    BIASED,
    CLEAN,
    EFFECT,
    FLIPS,
    MARGIN,
    TOLERATED,
    TOLERATED_ALONE,
    ModelStatus,
    better_rivals,
    breaks_rule,
    competing_variants,
    exceeds_budget,
    find_rejection,
    judge_methods,
    lost_classes,
    shown_variant,
    status_of,
    why_no_model,
)
