"""Artifacts: image to image and mask."""

from __future__ import annotations

import hashlib
import inspect
import io
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from typing_extensions import Self

from hansfree._internal.registry import Registered
from hansfree.data.images import describe_fault
from hansfree.errors import DataError, OptionError, check_choice

if TYPE_CHECKING:
    from hansfree.data.examples import ImageSource


class Artifact(Registered, ABC):
    """One kind of artifact; its ``repr`` has all its options, as caches are keyed by it.

    Examples:
        >>> import hansfree as hf
        >>> hf.Artifact.named("timestamp") is Timestamp
        True
    """

    kind = "artifact"
    localized: ClassVar[bool]
    """Whether the mask says where the artifact is; an unlocalised one touches the whole image."""
    needs_file: ClassVar[bool] = False
    """Whether it is made from a user's file."""

    @classmethod
    def for_images(cls) -> dict[str, type[Self]]:
        """Return those that can be inserted into a finished image, in order; others need a source that draws them."""
        return {name: member for name, member in cls.members().items() if member.insert is Artifact.insert}

    @abstractmethod
    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return a copy of ``image`` with the artifact, and the mask of the pixels it may have changed.

        Args:
            image: uint8, (height, width, 1 or 3); never changed.
            rng: the only source of randomness.
        """

    def insert(self, source: ImageSource, index: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Stamp one image of ``source``; the same (seed, sample id) gives the same artifact in every stage."""
        # The name joins the key: a source with the same seed draws its own images from other numbers.
        key = (seed, int(source.ids[index]), zlib.crc32(self.name.encode()))
        return self.stamp(source.image(index), np.random.default_rng(key))


def require_pixels(image: np.ndarray) -> None:
    """Reject what is not a uint8 image with channels last."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (1, 3) or not image.size:
        raise DataError(
            "An artifact needs a uint8 image of shape (height, width, 1 or 3), "
            f"not {image.dtype} of shape {tuple(image.shape)}."
        )


@dataclass(frozen=True)
class Timestamp(Artifact, name="timestamp"):
    """The date and time that a digital camera prints at the bottom right.

    Examples:
        >>> image, mask = Timestamp().stamp(np.zeros((64, 64, 3), np.uint8), np.random.default_rng(0))
        >>> bool(mask[40:, 10:].any()), bool(mask[:20].any())
        (True, False)
    """

    localized: ClassVar[bool] = True

    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Print a random plausible moment in orange with a dark outline, so that it shows on any background."""
        require_pixels(image)
        height, width, channels = image.shape
        year, month, day = rng.integers((2004, 1, 1), (2024, 13, 29))
        hour, minute = rng.integers((0, 0), (24, 60))
        fill, outline = _printed(f"{year}:{month:02}:{day:02}", f"{hour:02}:{minute:02}", width, height)
        orange = np.array((255, 150, 30)) if channels == 3 else np.array((255,))
        pixels = image * (1 - outline) + 20 * outline
        pixels = pixels * (1 - fill) + orange * fill
        return np.rint(pixels).astype(np.uint8), ((fill > 0) | (outline > 0))[..., 0]


def _printed(date: str, time: str, width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how far letters and outline cover each pixel, (height, width, 1) in [0, 1]; two lines where narrow."""
    wanted = max(min(width, height) / 16, 8.0)  # smaller letters than 8 px are a smear
    margin = max(1, round(0.03 * min(width, height)))
    between = " " if wanted * _ems(" ")[0] <= width - 2 * margin else "\n"
    text = f"{date}{between}{time}"
    wide, high = _ems(between)
    size = max(1.0, min(wanted, (width - 2 * margin) / wide, (height - 2 * margin) / high))
    stroke = max(1, round(size / 16))
    font = _font(round(size, 2))
    layers = []
    for stroke_width in (0, stroke):
        canvas = Image.new("L", (width, height))
        draw = ImageDraw.Draw(canvas)
        _, _, right, bottom = draw.multiline_textbbox((0, 0), text, font=font, spacing=size / 8, align="right")
        corner = (width - margin - right, height - margin - bottom)
        draw.multiline_text(
            corner, text, fill=255, font=font, spacing=size / 8, align="right", stroke_width=stroke_width
        )
        layers.append(np.asarray(canvas, dtype=np.float64)[..., None] / 255)
    fill, outline = layers
    return fill, outline


@lru_cache(maxsize=64)
def _font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


@lru_cache(maxsize=2)
def _ems(between: str) -> tuple[float, float]:
    """Return the width and height of a date and time in units of the font size; all digits are about as wide as 0."""
    text = f"0000:00:00{between}00:00"
    draw = ImageDraw.Draw(Image.new("L", (1, 1)))
    left, top, right, bottom = draw.multiline_textbbox((0, 0), text, font=_font(100.0), spacing=100 / 8)
    return (right - left) / 100, (bottom - top) / 100


@dataclass(frozen=True, kw_only=True)
class Brightness(Artifact, name="brightness"):
    """A brighter exposure (paper, App. A: alpha = 0.3).

    Args:
        alpha: how far every value moves towards white, in (0, 1].

    Examples:
        >>> image, mask = Brightness(alpha=0.5).stamp(np.zeros((8, 8, 3), np.uint8), np.random.default_rng(0))
        >>> int(image.mean()) in (127, 128)
        True
    """

    localized: ClassVar[bool] = False
    alpha: float = 0.3

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise OptionError(f"Brightness needs an alpha above 0 and up to 1, not {self.alpha!r}.")

    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Map every value ``v`` to ``min(255, (1 - alpha) v + alpha 255)``, truncated to an integer as in the paper."""
        require_pixels(image)
        table = np.minimum(255, (1 - self.alpha) * np.arange(256) + self.alpha * 255)
        return table.astype(np.uint8)[image], np.ones(image.shape[:2], dtype=bool)


@dataclass(frozen=True, kw_only=True)
class LSB(Artifact, name="lsb"):
    """A text hidden in the least significant bits, next to invisible (paper, App. A: 3 bits).

    Letters, one ASCII byte each with the highest bit first, fill one bit plane after another in raster order.

    Args:
        bits: how many of the lowest bits of every value are overwritten, 1 to 7.
        text: the same in every image, repeated as often as needed; None is random letters a-z, others in each image.
    """

    localized: ClassVar[bool] = False
    bits: int = 3
    text: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or not isinstance(self.bits, int) or not 1 <= self.bits <= 7:
            raise OptionError(f"LSB overwrites 1 to 7 whole bits, not {self.bits!r}.")
        if self.text is not None and not (self.text and self.text.isascii()):
            raise OptionError(f"The text of LSB has ASCII letters, at least one; it is {self.text!r}.")

    def __repr__(self) -> str:
        return f"LSB(bits={self.bits}{'' if self.text is None else f', text={self.text!r}'})"

    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Overwrite the low bits of every value with a message that is as long as they can hold."""
        require_pixels(image)
        if self.text is None:
            letters = rng.integers(ord("a"), ord("z") + 1, size=(self.bits, -(-image.size // 8)), dtype=np.uint8)
            stream = np.unpackbits(letters, axis=1)[:, : image.size]
        else:
            stream = np.resize(np.unpackbits(np.frombuffer(self.text.encode(), np.uint8)), self.bits * image.size)
        planes = stream.reshape(self.bits, *image.shape)
        weights = (1 << np.arange(self.bits)).astype(np.uint8)
        message = np.tensordot(weights, planes, axes=1).astype(np.uint8)
        kept = np.uint8(0xFF << self.bits & 0xFF)
        return (image & kept) | message, np.ones(image.shape[:2], dtype=bool)


@dataclass(frozen=True)
class Plaster(Artifact, name="plaster"):
    """A coloured plaster on the skin, drawn by the source itself under the light of the scene.

    It stands for natural artifacts, which are in the scene and not on top of the picture (the paper's collars).

    Examples:
        >>> import hansfree as hf
        >>> image, mask = hf.WithArtifact(hf.SyntheticLesions(4), hf.Plaster(), share=1).pixels(0)
        >>> bool(0 < mask.mean() < 0.5)
        True
    """

    localized: ClassVar[bool] = True

    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Raise: skin, lesion and light are not known in a finished image."""
        raise DataError("A plaster cannot be stamped on a finished picture: use insert with a source that draws it.")

    def insert(self, source: ImageSource, index: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Ask the source for the same scene with a plaster; the source's own seed decides how it looks."""
        render = getattr(source, "render", None)
        if render is None:
            raise DataError(
                f"{type(source).__name__} cannot draw a plaster: it has no method render(index, plaster=True). "
                "SyntheticLesions has one."
            )
        found: tuple[np.ndarray, np.ndarray] = render(index, plaster=True)
        return found


# fmt: off
Place = Literal[
    "random", "corners", "edges", "top-left", "top", "top-right", "left", "center", "right",
    "bottom-left", "bottom", "bottom-right",
]
# fmt: on


@dataclass(frozen=True, kw_only=True)
class Patch(Artifact, name="patch"):
    """A picture with an alpha channel, pasted on the image: test on clean images whether *your* shortcut matters.

    The file is read once, and its transparent border cut off. Its content is part of the ``repr``, its path is not.

    Args:
        file: PNG, or another format that has transparency.
        size: the patch's longer side, before it is turned, as part of the image's shorter side; above 0, up to 1.
        place: a corner, an edge (in its middle), the center; ``corners``: a random one of the four; ``edges``: anywhere
            along a random one of the four; ``random``: anywhere that it fits.
        angle: the largest rotation in degrees, either way, 0 to 180.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     Image.new("RGBA", (8, 2), (255, 0, 0, 255)).save(f"{folder}/ruler.png")
        ...     ruler = Patch(f"{folder}/ruler.png", place="top")
        >>> image, mask = ruler.stamp(np.zeros((32, 32, 3), np.uint8), np.random.default_rng(0))
        >>> int(mask.sum())
        16
    """

    localized: ClassVar[bool] = True
    needs_file: ClassVar[bool] = True

    file: str | Path | None = field(default=None, repr=False, compare=False, kw_only=False)
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
        # 0 and 0.0 are the same patch: caches and runs compare its repr
        values = {"size": float(self.size), "angle": float(self.angle), "content": content, "_picture": picture}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Paste the patch; what would stand over the image's edge is cut off."""
        require_pixels(image)
        height, width, channels = image.shape
        turn, down, across = rng.uniform(size=3)  # all three in every case: one option moves no other
        patch = _scaled(self._picture, self.size * min(height, width))
        if self.angle:
            patch = patch.rotate(self.angle * (2 * turn - 1), Image.Resampling.BICUBIC, expand=True)
        down, across = _position(self.place, down, across)
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
        with Image.open(io.BytesIO(content)) as opened:
            has_alpha, picture = opened.has_transparency_data, opened.convert("RGBA")
    except Exception as error:  # Pillow's formats raise almost anything for a damaged file
        raise DataError(f"{path} {describe_fault(error)}: a patch is a PNG with transparency.") from error
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


def _position(place: Place, down: float, across: float) -> tuple[float, float]:
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


InsertFunction = Callable[..., Any]
"""Takes an image (uint8 array, or a PIL image if so annotated) and, where it has a second parameter, a numpy generator;
returns the image with the artifact, on request with the mask of what changed."""


class FromFunction(Artifact):
    """An artifact that a function of the user inserts.

    Args:
        function: see `InsertFunction`. The same image and generator must give the same result.
        reopen: makes it again in another process, where the function cannot be pickled.

    Examples:
        >>> def darker(image, rng):
        ...     return (0.7 * image).astype(np.uint8)
        >>> image, mask = FromFunction(darker).stamp(np.full((8, 8, 3), 200, np.uint8), np.random.default_rng(0))
        >>> int(image.max()), bool(mask.all())
        (140, True)
    """

    localized = False

    def __init__(
        self,
        function: InsertFunction,
        *,
        channels: int = 3,
        size: int = 64,
        reopen: tuple[Callable[..., FromFunction], tuple[Any, ...]] | None = None,
    ) -> None:
        self.function, self._reopen, self._channels, self._size = function, reopen, channels, size
        self.name = getattr(function, "__name__", type(function).__name__)  # type: ignore[misc]
        parameters = [*inspect.signature(function).parameters.values()]
        first_parameter = parameters[0] if parameters else None
        self._takes_generator = len(parameters) > 1 or any(each.kind is each.VAR_POSITIONAL for each in parameters)
        self._takes_pil = first_parameter is not None and "Image" in str(first_parameter.annotation)
        probe = np.random.default_rng(0).integers(256, size=(size, size, channels), dtype=np.uint8)
        first, again = (self.stamp(probe, np.random.default_rng(1))[0] for _ in range(2))
        if not np.array_equal(first, again):
            raise OptionError(f"{self.name} gives another image each time. Draw from the generator that it gets.")
        if np.array_equal(first, probe):
            raise OptionError(f"{self.name} changes nothing in an image of {size} x {size} pixels.")
        self.localized = float((first != probe).any(axis=-1).mean()) < _LOCALIZED  # type: ignore[misc]
        self._key = hashlib.sha256(first.tobytes()).hexdigest()[:16]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by what opens the function again, where that is known."""
        if self._reopen is None:
            return partial(FromFunction, channels=self._channels, size=self._size), (self.function,)
        return self._reopen

    def __repr__(self) -> str:
        return f"FromFunction({self.name}, {self._key})"

    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Call the function on a copy of the image."""
        require_pixels(image)
        given = Image.fromarray(image.squeeze()) if self._takes_pil else image.copy()
        try:
            result = self.function(given, rng) if self._takes_generator else self.function(given)
        except Exception as error:
            raise OptionError(f"{self.name} failed with {type(error).__name__}: {error}") from error
        inserted, mask = result if isinstance(result, tuple) else (result, None)
        changed = np.asarray(inserted)
        if changed.dtype != np.uint8 or changed.shape not in (image.shape, image.squeeze().shape):
            raise OptionError(
                f"{self.name} returned {changed.dtype} of shape {changed.shape} for a uint8 image of shape "
                f"{image.shape}. Return the same type and shape."
            )
        changed = changed.reshape(image.shape)
        mask = (changed != image).any(axis=-1) if mask is None else np.asarray(mask, dtype=bool)
        return changed, mask


_LOCALIZED = 0.5  # of the pixels of a probe image that a localized artifact changes at most


def as_artifact(artifact: Artifact | InsertFunction) -> Artifact:
    """Return an artifact as it is, and a function as one."""
    return artifact if isinstance(artifact, Artifact) else FromFunction(artifact)
