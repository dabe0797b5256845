"""Images, labels and artifact labels: datasets, inserted artifacts, readers of a user's files, biased data."""

from hansfree.data.artifacts import (
    LSB,
    Artifact,
    Brightness,
    FromFunction,
    InsertFunction,
    Patch,
    Place,
    Plaster,
    PublishedTimestamp,
    Timestamp,
    as_artifact,
)
from hansfree.data.biased import (
    MIN_IMAGES,
    SETS,
    BiasedData,
    check_artifact_labels,
    check_same_images,
    check_share,
    count_images,
    insert_bias,
    insertable_artifacts,
    natural_bias,
)
from hansfree.data.datasets import InMemory, LabelledImages, Subset, WithMasks
from hansfree.data.examples import IMAGENET, Example, ImageDataset, ImageSource, Normalize, normalisation_for
from hansfree.data.images import MAX_SIZE, Channels, ImageFiles, Resize, check_images, decode, to_rgb
from hansfree.data.insertion import MultiArtifact, Pasted, WithArtifact
from hansfree.data.lesions import SyntheticLesions
from hansfree.data.listing import (
    PART_NAMES,
    PARTS,
    STANDARD_COLUMNS,
    Listing,
    OpenedImages,
    annotated_column,
    find_class,
    list_images,
    read_annotations,
    read_table,
)
from hansfree.data.printed import PrintedSkin
from hansfree.data.splits import SourceSubset, split_rows
from hansfree.data.torch_images import (
    DatasetListing,
    Images,
    TorchImages,
    as_biased_data,
    as_image_dataset,
    as_tensor,
    given_datasets,
    open_datasets,
)
from hansfree.data.user_images import SHARES, UserImages
