"""Files on disk: every kind of picture becomes three channels of 8 bits, every bad file one sentence."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from hansfree.datasets.images import ImageFiles, check_images, find_folder, read_table, unlisted_files
from hansfree.errors import DataError, OptionError


def smooth(width, height, channels=3):
    """A picture without sharp edges, so that JPEG keeps it."""
    x, y = np.meshgrid(np.linspace(0, 200, width), np.linspace(0, 200, height))
    return np.stack([x, y, (x + y) / 2], axis=-1)[..., :channels].astype(np.uint8)


def source(*paths, **options):
    return ImageFiles(paths, [0] * len(paths), **{"class_names": ("only",), "size": 16, **options})


def saved(path, array, **options):
    Image.fromarray(array).save(path, **options)
    return path


def test_a_picture_of_the_right_size_is_unchanged(tmp_path):
    pixels = smooth(16, 16)
    image = source(saved(tmp_path / "a.png", pixels)).image(0)
    assert image.dtype == np.uint8
    assert np.array_equal(image, pixels)
    image[:] = 0  # a caller may write into it


def test_grey_and_transparent_pictures_become_three_channels(tmp_path):
    grey = smooth(16, 16)[..., 0]
    assert np.array_equal(source(saved(tmp_path / "g.png", grey)).image(0), np.repeat(grey[..., None], 3, axis=2))
    rgba = np.dstack([smooth(16, 16), np.full((16, 16), 7, np.uint8)])
    assert np.array_equal(source(saved(tmp_path / "t.png", rgba)).image(0), smooth(16, 16))


def test_a_palette_with_transparency_is_read_without_a_warning(tmp_path):
    Image.fromarray(smooth(16, 16)).quantize(8).save(tmp_path / "p.png", transparency=bytes([0, 128] * 4))
    assert source(tmp_path / "p.png").image(0).shape == (16, 16, 3)


def test_sixteen_bits_are_scaled_to_eight(tmp_path):
    values = np.linspace(0, 65535, 256).reshape(16, 16).round().astype(np.uint16)
    image = source(saved(tmp_path / "deep.png", values)).image(0)
    assert np.array_equal(image[..., 0], np.rint(values / 257).astype(np.uint8))
    assert image[..., 0].min() == 0
    assert image[..., 0].max() == 255


def test_exif_orientation_is_ignored_as_by_torchvision(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # "turn it by 90 degrees"
    plain = saved(tmp_path / "plain.png", smooth(16, 16))
    turned = saved(tmp_path / "turned.png", smooth(16, 16), exif=exif)
    with Image.open(turned) as opened:
        assert opened.getexif()[0x0112] == 6
    assert np.array_equal(source(turned).image(0), source(plain).image(0))


@pytest.mark.parametrize(("width", "height"), [(50, 37), (37, 50), (41, 41), (90, 31), (20, 24)])
def test_crop_is_torchvisions_to_the_pixel(tmp_path, width, height):
    picture = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    path = saved(tmp_path / "a.png", picture)
    ours = source(path, size=28, resize="crop").image(0)
    reference = v2.Compose([v2.Resize(32, antialias=True), v2.CenterCrop(28)])(Image.fromarray(picture))
    assert np.array_equal(ours, np.asarray(reference))


def test_squash_keeps_the_whole_picture(tmp_path):
    path = saved(tmp_path / "a.png", smooth(60, 30))
    ours = source(path, size=20).image(0)
    reference = v2.Resize((20, 20), antialias=True)(torch.from_numpy(smooth(60, 30)).permute(2, 0, 1))
    assert np.abs(ours.astype(int) - reference.permute(1, 2, 0).numpy().astype(int)).max() <= 1
    assert ours[0, 0, 0] < 15
    assert ours[0, -1, 0] > 185


def test_ids_name_the_images(tmp_path):
    paths = [saved(tmp_path / f"{name}.png", smooth(4, 4)) for name in "ab"]
    assert source(*paths).ids.tolist() == [0, 1]
    some = source(*paths, ids=np.array([3, 9]))
    assert some.ids.tolist() == [3, 9]
    assert (some.id_range, source(*paths).id_range) == (range(10), range(2))
    assert source(*paths, ids=np.array([3, 9]), id_range=range(20)).id_range == range(20)


def test_the_fingerprint_follows_files_labels_and_options_but_not_the_folder(tmp_path):
    (tmp_path / "old").mkdir()
    path = saved(tmp_path / "old" / "a.png", smooth(8, 8))
    os.utime(path, ns=(10**18, 10**18))

    def print_of(path=path, label=0, **options):
        given = {"class_names": ("x", "y"), "size": 8, **options}
        return ImageFiles([path], [label], **given).fingerprint

    first = print_of()
    assert print_of() == first
    others = {
        first,
        print_of(label=1),
        print_of(size=9),
        print_of(resize="crop"),
        print_of(ids=np.array([5])),
        print_of(id_range=range(7)),
        print_of(class_names=("x", "z")),
    }
    assert len(others) == 7
    (tmp_path / "old").rename(tmp_path / "new")
    moved = tmp_path / "new" / "a.png"
    assert print_of(moved) == first
    os.utime(moved, ns=(10**18, 10**18 + 10**9))
    assert print_of(moved) != first
    saved(moved, smooth(9, 8))
    os.utime(moved, ns=(10**18, 10**18))
    assert print_of(moved) != first


def test_a_file_that_is_gone_later_is_named(tmp_path):
    gone = source(tmp_path / "gone.png")
    with pytest.raises(DataError, match=r"gone\.png is missing"):
        gone.image(0)
    with pytest.raises(DataError, match=r"gone\.png is missing"):
        _ = gone.fingerprint


def test_a_file_that_breaks_later_is_named(tmp_path):
    path = saved(tmp_path / "a.jpg", smooth(200, 200))
    images = source(path)
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(DataError, match=r"a\.jpg is not a readable image \(truncated\)"):
        images.image(0)
    Image.fromarray(np.zeros((4, 4), np.float32)).save(tmp_path / "f.tiff")
    with pytest.raises(DataError, match=r"f\.tiff is not a readable image .*decimal values"):
        source(tmp_path / "f.tiff").image(0)


def test_wrong_options_are_refused():
    with pytest.raises(OptionError, match="Did you mean 'crop'"):
        source("a.png", resize="crops")
    with pytest.raises(OptionError, match="1 pixel or more, not 0"):
        source("a.png", size=0)
    with pytest.raises(DataError, match="2 files need as many labels"):
        ImageFiles(["a", "b"], [0], class_names=("x",), size=4)
    with pytest.raises(DataError, match="from 0 to 0, but there is 1"):
        ImageFiles(["a", "b"], [0, 1], class_names=("x",), size=4)


@pytest.fixture
def mixed(tmp_path):
    """Good and bad files, by what is the matter with them."""
    saved(tmp_path / "good.jpg", smooth(64, 64))
    saved(tmp_path / "good.png", smooth(64, 64))
    saved(tmp_path / "other.bmp", smooth(8, 8))
    jpg, png = (tmp_path / "good.jpg").read_bytes(), (tmp_path / "good.png").read_bytes()
    (tmp_path / "appended.jpg").write_bytes(jpg + b"a camera's own bytes")
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("<html>not found</html>" * 20)
    (tmp_path / "cut.jpg").write_bytes(jpg[: len(jpg) * 2 // 3])
    (tmp_path / "cut.png").write_bytes(png[: len(png) * 2 // 3])
    (tmp_path / "unended.png").write_bytes(png[:-12])
    middle = len(png) // 2
    (tmp_path / "flipped.png").write_bytes(png[:middle] + bytes([png[middle] ^ 255]) + png[middle + 1 :])
    (tmp_path / "folder.jpg").mkdir()
    return tmp_path


BAD = {
    "missing.jpg": "is missing",
    "empty.jpg": "is empty",
    "text.jpg": r"is not a readable image \(no known format\)",
    "cut.jpg": r"is not a readable image \(truncated\)",
    "cut.png": "is not a readable image",
    "unended.png": "is not a readable image",
    "flipped.png": r"is not a readable image \(damaged",
    "folder.jpg": "cannot be read",
}


@pytest.mark.parametrize("name", BAD)
def test_the_first_bad_file_is_one_sentence_with_its_path_and_the_way_out(mixed, name):
    with pytest.raises(DataError, match=f"{name} {BAD[name]}.*: restore the file, .*--skip-bad") as caught:
        check_images([mixed / "good.jpg", mixed / name], skip_bad=False)
    assert str(mixed) in str(caught.value)


@pytest.mark.parametrize("name", ["good.jpg", "good.png", "other.bmp", "appended.jpg"])
def test_good_files_pass(mixed, name):
    good, skipped = check_images([mixed / name], skip_bad=False)
    assert good.tolist() == [0]
    assert skipped == []


def test_skip_bad_records_a_sentence_for_each(mixed):
    names = ["missing.jpg", "good.jpg", "cut.jpg", "empty.jpg", "good.png", "cut.png"]
    seen = []

    def progress(steps, *, total, label):
        for step in steps:
            seen.append((total, label))
            yield step

    good, skipped = check_images([mixed / name for name in names], skip_bad=True, progress=progress)
    assert good.tolist() == [1, 4]
    assert [line.split(" ")[0] for line in skipped] == [str(mixed / names[row]) for row in (0, 2, 3, 5)]
    assert seen == [(6, "Checking the images")] * 6


def test_nothing_good_is_an_error_even_when_skipping(mixed):
    with pytest.raises(DataError, match=r"None of the 2 images can be used: .*empty\.jpg is empty\."):
        check_images([mixed / "empty.jpg", mixed / "cut.jpg"], skip_bad=True)


def test_a_table_is_read_by_its_header(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('\ufeffimage, age\na, 3\n\n"b, c",4\n', encoding="utf-8")
    assert read_table(path, ["age"]) == [{"image": "a", "age": "3"}, {"image": "b, c", "age": "4"}]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "is missing"),
        (b"", "has no column 'image'. It has: nothing"),
        (b"images;age,3\na,3\n", "has no column 'image'"),
        (b"images,age\na,3\n", "has no column 'image'. Did you mean 'images'. It has: images, age"),
        (b"image;age\na;3\n", "has semicolons between its columns, and a CSV table needs commas"),
        (b"image\tage\na\t3\n", "has tabs between its columns"),
        (b"image,age\n", "has a header but no rows"),
        (b"image,age\na,3\nb\n", "has 1 values in row 3, its header has 2"),
        (b"image,age\na,\xff\xfe\n", "cannot be read as a CSV table"),
    ],
)
def test_a_bad_table_is_one_sentence_with_its_path(tmp_path, content, sentence):
    path = tmp_path / "t.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=rf"t\.csv {sentence}"):
        read_table(path, ["image", "age"])


def test_a_folder_is_found_also_when_it_is_nested_once(tmp_path):
    (tmp_path / "flat").mkdir()
    (tmp_path / "deep" / "deep").mkdir(parents=True)
    assert find_folder(tmp_path, "flat") == tmp_path / "flat"
    assert find_folder(tmp_path, "deep") == tmp_path / "deep" / "deep"
    with pytest.raises(DataError, match=r"has no folder 'flut'\. Did you mean 'flat'"):
        find_folder(tmp_path, "flut")
    with pytest.raises(DataError, match=r"There is no folder .*nowhere"):
        find_folder(tmp_path / "nowhere", "flat")


def test_only_pictures_count_as_unlisted(tmp_path):
    for name in ("a.jpg", "b.jpg", "LICENSE.txt"):
        (tmp_path / name).touch()
    assert unlisted_files(tmp_path, ["a.jpg"]) == [f"{tmp_path / 'b.jpg'} is not in the table."]
    assert unlisted_files(tmp_path, ["a.jpg", "b.jpg"]) == []
