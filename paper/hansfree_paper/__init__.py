"""The paper's datasets and experiments; importing the package registers them."""

from hansfree_paper import embedded, experiments, medical, natural_images, user_table

__all__ = ["embedded", "experiments", "medical", "natural_images", "user_table"]
