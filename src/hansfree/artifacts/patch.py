"""A user's own shortcut: a picture with transparency, such as a ruler, a tag or a sticker, pasted on the image."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from PIL import Image

from hansfree.artifacts.base import Artifact, require_pixels
from hansfree.errors import DataError, OptionError, check_choice

Place = Literal[
    "random",
    "corners",
    "edges",
    "top-left",
    "top",
    "top-right",
    "left",
    "center",
    "right",
    "bottom-left",
    "bottom",
    "bottom-right",
]


@dataclass(frozen=True, kw_only=True)
class Patch(Artifact, name="patch"):
    """A picture with an alpha channel, pasted on the image: test on clean images whether *your* shortcut matters.

    The picture is kept as it was when the artifact was made, without its transparent border. Its content is part of
    the ``repr``, its path is not: a file that was moved is the same artifact, one that was edited another.

    Args:
        file: PNG, or another format that has transparency.
        size: the patch's longer side, before it is turned, as part of the image's shorter side; above 0, up to 1.
        place: a corner, an edge (in its middle), the center; ``corners``: a random one of the four; ``edges``: anywhere
            along a random one of the four; ``random``: anywhere that it fits.
        angle: the largest rotation in degrees, either way, 0 to 180.
    """

    localized: ClassVar[bool] = True
    needs_file: ClassVar[bool] = True

    file: str | Path | None = field(default=None, repr=False, compare=False)
    size: float = 0.25
    place: Place = "random"
    angle: float = 0.0
    content: str = field(init=False)  # a hash of the file
    _picture: Image.Image = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.file is None:
            raise OptionError("A patch needs its picture: give the file of a PNG with transparency.")
        if not 0 < self.size <= 1:
            raise OptionError(
                f"The size of a patch is a part of the image's side, above 0 and up to 1, not {self.size!r}."
            )
        check_choice("place", self.place, Place)
        if not 0 <= self.angle <= 180:
            raise OptionError(f"The angle of a patch is 0 to 180 degrees, not {self.angle!r}.")
        content, picture = _read(Path(self.file))
        object.__setattr__(self, "content", content)
        object.__setattr__(self, "_picture", picture)

    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Paste the patch; what would stand over the image's edge is cut off."""
        require_pixels(image)
        height, width, channels = image.shape
        turn, down, across = rng.uniform(size=3)  # all three in every case: one option moves no other
        patch = _scaled(self._picture, self.size * min(height, width))
        if self.angle:
            patch = patch.rotate(self.angle * (2 * turn - 1), Image.Resampling.BICUBIC, expand=True)
        down, across = _stand(self.place, down, across)
        top, left = _start(height, patch.height, down), _start(width, patch.width, across)
        canvas = Image.new("RGBA", (width, height))
        canvas.paste(patch, (left, top))
        alpha = np.asarray(canvas.getchannel("A"), dtype=np.float64)[..., None] / 255
        if not alpha.any():
            raise DataError(f"{self.file} leaves no trace at {self.size:g} of an image of {width} x {height} pixels.")
        colours = np.asarray(canvas.convert("RGB" if channels == 3 else "L")).reshape(image.shape)
        pixels = image * (1 - alpha) + colours * alpha
        return np.rint(pixels).astype(np.uint8), alpha[..., 0] > 0


def _read(path: Path) -> tuple[str, Image.Image]:
    """Return a hash of the file and its visible part."""
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise DataError(f"{path} {reason}: a patch is a PNG with transparency.") from error
    try:
        with Image.open(io.BytesIO(content)) as opened:
            has_alpha = opened.has_transparency_data
            picture = opened.convert("RGBA")
    except Exception as error:  # Pillow's formats raise almost anything for a damaged file
        raise DataError(f"{path} is not a readable picture ({error}): a patch is a PNG with transparency.") from error
    if not has_alpha:
        raise DataError(f"{path} has no transparency: a patch is a PNG with an alpha channel, which tells its shape.")
    visible = picture.getchannel("A").getbbox()
    if visible is None:
        raise DataError(f"{path} is fully transparent: there is nothing to paste.")
    return hashlib.sha256(content).hexdigest()[:24], picture.crop(visible)


def _scaled(picture: Image.Image, side: float) -> Image.Image:
    """Return the picture with a longer side of ``side`` pixels; Pillow weighs colours by alpha, so no edge darkens."""
    factor = side / max(picture.size)
    wide, high = (max(1, round(factor * length)) for length in picture.size)
    return picture.resize((wide, high), Image.Resampling.BILINEAR)


def _stand(place: Place, down: float, across: float) -> tuple[float, float]:
    """Return how far down and across a place is, from 0 to 1; two random numbers choose where it leaves a choice."""
    if place == "random":
        return down, across
    if place == "corners":
        return float(down >= 0.5), float(across >= 0.5)
    if place == "edges":
        edge = int(4 * down)  # top, bottom, left, right
        return (float(edge), across) if edge < 2 else (across, float(edge - 2))
    return _part(place, "top", "bottom"), _part(place, "left", "right")


def _part(place: Place, low: str, high: str) -> float:
    """Return how far along an axis a fixed place is."""
    words = place.split("-")
    return 0.0 if low in words else 1.0 if high in words else 0.5


def _start(room: int, length: int, part: float) -> int:
    """Return where a patch begins; one that does not fit keeps its middle in the image's middle."""
    free = room - length
    return round(part * free) if free >= 0 else free // 2
