"""Which artifact, and which images: suspects among unlabelled images, and the labelling page."""

from hansfree.discovery.opening import (
    By as By,
    open_unlabelled_images as open_unlabelled_images,
    search_suspects as search_suspects,
)
