"""Which artifact, and which images: suspects among unlabelled images, and the labelling page."""

from hansfree.discovery.opening import By, open_unlabelled_images, search_suspects
