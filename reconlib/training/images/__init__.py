"""Magnitude images for training, from the formats in which sites keep them."""

from reconlib.training.images.errors import DataError
from reconlib.training.images.image_set import ImageSet
from reconlib.training.images.loading import collect_images, load_images
from reconlib.training.images.settings import ImageSettings

__all__ = ["DataError", "ImageSet", "ImageSettings", "collect_images", "load_images"]
