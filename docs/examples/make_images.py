"""Make the files of the guides: images with a table, a ruler as PNG, and a timm model trained on them.

Half of the images of one class show a ruler, and few of the others; or half of them a time of day, and none of the
others. The model is trained on the training images only, which the table names. Usage::

    python docs/examples/make_images.py FOLDER          # Correct your own model
    python docs/examples/make_images.py FOLDER clock    # From a table to a proven model
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

try:
    import numpy as np
    import timm
    import torch
    from PIL import Image, ImageDraw, ImageFont

    import hansfree as hf
except ModuleNotFoundError as error:
    sys.exit(f"{error.name} is not installed. In your copy of the repository: pip install -e '.[timm]'")

NUMBER, SIZE, SEED = 2000, 64, 5
SHARES = (0.6, 0.2, 0.2)  # of training, validation and test images
NETWORK, EPOCHS = "resnet10t", 10


def draw_ruler(path: Path) -> None:
    """Draw a ruler on a transparent background."""
    picture = Image.new("RGBA", (240, 60))
    draw = ImageDraw.Draw(picture)
    draw.rounded_rectangle((0, 0, 239, 59), radius=6, fill=(245, 245, 235, 255), outline=(30, 30, 30, 255), width=4)
    for tick in range(1, 12):
        draw.line((20 * tick, 0, 20 * tick, 40 if tick % 2 else 25), fill=(30, 30, 30, 255), width=5)
    picture.save(path)


def print_time(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Print a random time of day into the corner, as some cameras do."""
    picture = Image.fromarray(image)
    text = f"{rng.integers(24):02}:{rng.integers(60):02}"
    ImageDraw.Draw(picture).text((2, 1), text, font=ImageFont.load_default(14), fill=(190, 255, 120))
    return np.asarray(picture)


def write_images(folder: Path, artifact: str = "ruler") -> tuple[np.ndarray, np.ndarray]:
    """Write the images and ``labels.csv``; return the pixels and the labels of the training images."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    draw_ruler(folder / "ruler.png")
    number, elsewhere = (NUMBER, 0.04) if artifact == "ruler" else (2 * NUMBER, 0.0)
    lesions = hf.SyntheticLesions(number, size=SIZE, seed=SEED)
    ruler = hf.Patch(file=folder / "ruler.png", size=0.5, angle=180)
    rng = np.random.default_rng(SEED)
    has_artifact = rng.random(number) < np.where(lesions.labels == 0, 0.5, elsewhere)
    parts = rng.choice(["train", "val", "test"], size=number, p=SHARES)
    pixels, rows = [], []
    for i in range(number):
        image = lesions.image(i)
        if has_artifact[i]:
            image = ruler.insert(lesions, i, seed=SEED)[0] if artifact == "ruler" else print_time(image, rng)
        name = f"{i:04}.png"
        Image.fromarray(image).save(folder / "images" / name)
        pixels.append(image)
        rows.append((name, lesions.class_names[lesions.labels[i]], int(has_artifact[i]), parts[i]))
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("image", "label", "artifact", "split"), *rows])
    is_train = parts == "train"
    return np.stack(pixels)[is_train], lesions.labels[is_train]


def train(pixels: np.ndarray, labels: np.ndarray) -> torch.nn.Module:
    """Train a network on the images, as usual."""
    torch.manual_seed(SEED)
    model = timm.create_model(NETWORK, num_classes=4)
    images, classes = hf.Normalize()(pixels), torch.from_numpy(labels)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(images)).split(64):
            loss = torch.nn.functional.cross_entropy(model(images[rows]), classes[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


if __name__ == "__main__":
    torch.set_num_threads(1)  # the number of threads changes rounding, and so the trained model
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ["clock"]):
        sys.exit("Usage: python docs/examples/make_images.py FOLDER [clock]")
    target = Path(sys.argv[1])
    torch.save(train(*write_images(target, *sys.argv[2:])).state_dict(), target / "model.pt")
