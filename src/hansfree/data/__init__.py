"""Images, labels and artifact labels: datasets, inserted artifacts, readers of a user's files, biased data."""

from hansfree.data.artifacts import (
    LSB as LSB,
    Artifact as Artifact,
    Brightness as Brightness,
    FromFunction as FromFunction,
    InsertFunction as InsertFunction,
    Patch as Patch,
    Place as Place,
    Plaster as Plaster,
    Timestamp as Timestamp,
)
from hansfree.data.biased import (
    MIN_IMAGES as MIN_IMAGES,
    SETS as SETS,
    BiasedData as BiasedData,
    check_artifact_labels as check_artifact_labels,
    check_same_images as check_same_images,
    check_share as check_share,
    count_images as count_images,
    insert_bias as insert_bias,
    insertable_artifacts as insertable_artifacts,
    natural_bias as natural_bias,
)
from hansfree.data.datasets import (
    InMemory as InMemory,
    LabelledImages as LabelledImages,
    Subset as Subset,
    WithMasks as WithMasks,
)
from hansfree.data.examples import (
    IMAGENET as IMAGENET,
    Example as Example,
    ImageDataset as ImageDataset,
    ImageSource as ImageSource,
    Normalize as Normalize,
)
from hansfree.data.images import (
    MAX_SIZE as MAX_SIZE,
    Channels as Channels,
    ImageFiles as ImageFiles,
    Resize as Resize,
    check_images as check_images,
    decode as decode,
    to_rgb as to_rgb,
)
from hansfree.data.insertion import MultiArtifact as MultiArtifact, Pasted as Pasted, WithArtifact as WithArtifact
from hansfree.data.lesions import SyntheticLesions as SyntheticLesions
from hansfree.data.listing import (
    BITS as BITS,
    PART_NAMES as PART_NAMES,
    PARTS as PARTS,
    STANDARD_COLUMNS as STANDARD_COLUMNS,
    TOO_FEW_OUTPUTS as TOO_FEW_OUTPUTS,
    Listing as Listing,
    OpenedImages as OpenedImages,
    annotated_column as annotated_column,
    find_class as find_class,
    list_images as list_images,
    read_annotations as read_annotations,
    read_table as read_table,
)
from hansfree.data.splits import SourceSubset as SourceSubset, split_rows as split_rows
from hansfree.data.torch_images import (
    DatasetListing as DatasetListing,
    Images as Images,
    TorchImages as TorchImages,
    as_biased_data as as_biased_data,
    as_image_dataset as as_image_dataset,
    as_tensor as as_tensor,
    dataset_of as dataset_of,
    given_datasets as given_datasets,
    open_datasets as open_datasets,
)
from hansfree.data.user_images import (
    SHARES as SHARES,
    UserImages as UserImages,
    missing_column as missing_column,
)
