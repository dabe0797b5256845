"""What a model does with and without the artifact, and what that means."""

from hansfree.evaluation.evaluate import (
    HeldOutFeatures as HeldOutFeatures,
    SideEffects as SideEffects,
    State as State,
    held_out_features as held_out_features,
    judge_head as judge_head,
    measure_positions as measure_positions,
    measure_side_effects as measure_side_effects,
)
from hansfree.evaluation.forgetting import (
    Forgetting as Forgetting,
    Probe as Probe,
    Relearning as Relearning,
    RelearningCurve as RelearningCurve,
    probe_artifact as probe_artifact,
    relearn as relearn,
    reset_head as reset_head,
)
from hansfree.evaluation.heatmaps import artifact_relevance as artifact_relevance
from hansfree.evaluation.localisation import (
    compute_cav_heatmaps as compute_cav_heatmaps,
    masks_from_heatmaps as masks_from_heatmaps,
)
from hansfree.evaluation.results import (
    CLEAN_TRAINED as CLEAN_TRAINED,
    FIRST as FIRST,
    ORIGINAL as ORIGINAL,
    REFERENCES as REFERENCES,
    HeatmapSet as HeatmapSet,
    Results as Results,
    Row as Row,
    Variant as Variant,
    load_results as load_results,
    method_title as method_title,
    read_rows as read_rows,
    row_of_quality as row_of_quality,
    rows_of as rows_of,
    takes_out_direction as takes_out_direction,
    tested_rows as tested_rows,
    validated_rows as validated_rows,
    write_table as write_table,
)
from hansfree.evaluation.verdict import (
    BIASED as BIASED,
    BIASED_ACCURACY as BIASED_ACCURACY,
    CLEAN as CLEAN,
    EFFECT as EFFECT,
    FLIPS as FLIPS,
    MARGIN as MARGIN,
    TOLERATED as TOLERATED,
    TOLERATED_ALONE as TOLERATED_ALONE,
    WORST_GROUP as WORST_GROUP,
    ModelStatus as ModelStatus,
    better_rivals as better_rivals,
    breaks_rule as breaks_rule,
    claims as claims,
    competing_variants as competing_variants,
    exceeds_budget as exceeds_budget,
    find_rejection as find_rejection,
    judge_methods as judge_methods,
    lost_classes as lost_classes,
    shown_variant as shown_variant,
    status_of as status_of,
    why_no_model as why_no_model,
)
