"""Damage to files of a run directory, and mutations of what a user gives: run file, table, images, weights."""

from __future__ import annotations

import copy
import csv
import os
import pickle
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file, save_file

HIDDEN = (".lock",)


def damage_file(folder: Path, rng: random.Random) -> str:
    """Damage one file of a run directory; return what was done."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in HIDDEN)
    path = rng.choice(files)
    content = path.read_bytes()
    kind = rng.choice(("flip", "flip", "truncate", "delete", "empty", "garbage", "other file"))
    if kind == "flip" and content:
        place = rng.randrange(len(content))
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :])
    elif kind == "truncate":
        path.write_bytes(content[: rng.randrange(len(content) + 1)])
    elif kind == "delete":
        path.unlink()
    elif kind == "garbage":
        path.write_bytes(rng.randbytes(len(content)))
    elif kind == "other file":
        path.write_bytes(rng.choice(files).read_bytes())
    else:
        path.write_bytes(b"")
    return f"{kind} of {path.relative_to(folder)}"


NASTY: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2.5, 10**12, 1e11, -1e-300, float("nan"), float("inf"), "", " ", "x" * 5000, "\x00", "../..",
    "/", "nowhere.csv", "é√中", "rr-clarc@", "@svm", "file.py:", ":", "{}", "[]", [], [[]], {}, {"a": {"b": []}},
    ["rr-clarc", "rr-clarc"], [None], {1: 2}, ["dark"], ["dark", "bright", "third"], "0x10", "1e3", -0.0, 2**63, "=1+1",
)  # fmt: skip


def mutate_run_file(content: dict[str, Any], rng: random.Random) -> str:
    """Return the text of a run file with one fault, or a few."""
    content = copy.deepcopy(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(_places(content))
        owner, key = rng.choice(places)
        change = rng.choice(("replace", "replace", "replace", "delete", "rename", "add", "swap"))
        if change == "replace":
            owner[key] = copy.deepcopy(rng.choice(NASTY))
        elif change == "delete":
            del owner[key]
        elif change == "rename" and isinstance(owner, dict):
            owner[f"{key}s"] = owner.pop(key)
        elif change == "add" and isinstance(owner, dict):
            owner[rng.choice(_KEYS)] = copy.deepcopy(rng.choice(NASTY))
        else:
            other, other_key = rng.choice(places)
            if other_key in (other if isinstance(other, dict) else range(len(other))):
                owner[key] = copy.deepcopy(other[other_key])
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    if rng.random() < 0.15:
        place = rng.randrange(len(text) + 1)
        text = text[:place] + rng.choice(("\t", "{", "*a", "&a", "\x00", "- ", ": ", "!!python/name:os.system ", "'"))
    return text


_KEYS = (
    "layer", "output", "label", "size", "resize", "channels", "mean", "std", "skip_bad", "shares", "insert", "file",
    "place", "scale", "angle", "share", "also", "remove", "keep", "cav", "further_cavs", "train", "optimizer", "budget",
    "class_budgets", "rule", "repeats", "network", "seed", "device", "workers", "artifacts", "methods", "strengths",
)  # fmt: skip


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of the content with each of its keys."""
    for key in list(content) if isinstance(content, dict) else range(len(content)):
        yield content, key
        if isinstance(content[key], dict | list) and content[key]:
            yield from _places(content[key])


BOMB = "\n".join(["a0: &a0 [x, x]", *(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]" for i in range(9))])
RAW_RUN_FILES = (
    b"", b"\xff\xfe\x00", b"{", b"[]", b"text", b"a: b: c", b"out: &x [*x]", b"{" * 5000, b"- " * 3000,
    f"{BOMB}\ncorrection: {{methods: *a9}}".encode(), b"\x89PNG\r\n\x1a\n",
    b"out: !!python/object/apply:os.system [true]",
    b"out: 2020-13-01", b"out: run\nout: run", "model: {source: naïve.py:build}".encode("latin-1"),
)  # fmt: skip


def mutate_table(rows: list[list[str]], rng: random.Random) -> bytes:
    """Return a table with one fault."""
    rows = [list(row) for row in rows]
    kind = rng.randrange(11)
    column, row = rng.randrange(len(rows[0])), rng.randrange(1, len(rows))
    if kind == 0:
        rows[0][column] = rng.choice(("", "Image", "label ", "artifact", "x"))
    elif kind == 1:
        rows = [[cell for i, cell in enumerate(each) if i != column] for each in rows]
    elif kind == 2:
        other = rng.randrange(len(rows[0]))
        for each in rows[1:]:
            each[column], each[other] = each[other], each[column]
    elif kind == 3:
        rows[row][column] = str(rng.choice(NASTY))
    elif kind == 4:
        rows = rows[: rng.randrange(3)]
    elif kind == 5:
        rows.append(rows[row])
    elif kind == 6:
        rows[row] = rows[row][: rng.randrange(len(rows[0]))] if rng.random() < 0.5 else [*rows[row], "more", "cells"]
    elif kind == 7:
        for each in rows[1:]:
            each[column] = rows[row][column]
    elif kind == 8:
        return "\n".join(";".join(each) for each in rows).encode("utf-16" if rng.random() < 0.5 else "utf-8-sig")
    elif kind == 9:
        return rng.randbytes(500)
    else:
        return b'image,label,artifact,split\n"unclosed,' + b"x" * rng.choice((1, 200_000))
    return "\n".join(",".join(each) for each in rows).encode()


def spoil_image(path: Path, rng: random.Random) -> None:
    """Replace an image by what is not a usable one, or an unusual one."""
    content = path.read_bytes()
    path.unlink()
    kind = rng.randrange(12)
    if kind == 0:
        path.write_bytes(content[: len(content) // 2])
    elif kind == 1:
        path.write_bytes(b"")
    elif kind == 2:
        path.mkdir()
    elif kind == 3:
        os.symlink(path, path)
    elif kind == 4:
        Image.new("CMYK", (20, 20)).save(path, format="JPEG")
    elif kind == 5:
        Image.new("RGB", (1, 1)).save(path)
    elif kind == 6:
        Image.fromarray(np.zeros((9, 9), dtype=np.uint16)).save(path)
    elif kind == 7:
        Image.new("P", (8, 3000)).save(path)
    elif kind == 8:
        path.write_text("not an image")
    elif kind == 9:  # a header that promises 50,000 x 50,000 pixels
        path.write_bytes(content[:16] + (50_000).to_bytes(4, "big") * 2 + content[24:])
    elif kind == 10:
        Image.new("RGBA", (30, 20)).save(path, format="GIF", save_all=True, append_images=[Image.new("RGB", (30, 20))])
    # else: it is missing


def spoil_weights(path: Path, rng: random.Random) -> None:
    """Replace a weights file by one that does not fit, is damaged, or is a pickle that would run code."""
    content, weights = path.read_bytes(), load_file(path)
    name = rng.choice(sorted(weights))
    path.unlink()
    kind = rng.randrange(9)
    if kind == 0:
        path.write_bytes(content[: rng.randrange(len(content))])
    elif kind == 1:
        path.write_bytes(rng.randbytes(400))
    elif kind == 2:
        path.write_bytes(pickle.dumps({name: _Dangerous()}))
    elif kind == 3:
        path.mkdir()
    elif kind == 4:
        save_file({key: tensor for key, tensor in weights.items() if key != name}, path)
    elif kind == 5:
        save_file({**weights, name: torch.zeros(3, 1, 2)}, path)
    elif kind == 6:
        save_file({**weights, name: torch.full_like(weights[name], float("nan"))}, path)
    elif kind == 7:
        save_file({f"other.{key}": tensor for key, tensor in weights.items()}, path)
    else:
        save_file({**weights, name: weights[name].to(torch.int8)}, path)


class _Dangerous:
    """A pickle of it would create a file."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return open, ("pickle-was-executed", "w")


def spoil_input(user: Path, content: dict[str, Any], rng: random.Random) -> str:
    """Write ``run.yaml`` into a copy of the user's folder, with one bad input; return what was done."""
    file, table = user / "run.yaml", user / content["data"]["table"]
    kind = rng.choice(("run file", "run file", "run file", "raw", "table", "table", "image", "weights", "folder"))
    if kind == "run file":
        file.write_text(mutate_run_file(content, rng))
        return kind
    file.write_text(yaml.safe_dump(content))
    if kind == "raw":
        file.write_bytes(rng.choice(RAW_RUN_FILES))
    elif kind == "table":
        with table.open(newline="") as lines:
            rows = list(csv.reader(lines))
        table.write_bytes(mutate_table(rows, rng))
    elif kind == "image":
        images = sorted((user / "images").iterdir())
        for path in rng.sample(images, rng.choice((1, 1, 3, len(images)))):
            spoil_image(path, rng)
    elif kind == "weights":
        spoil_weights(user / content["model"]["weights"], rng)
    else:
        path = rng.choice((table, user / "net.py", user / "images", user / "run"))
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if rng.random() < 0.5:
            path.write_text("x = 1\n") if path.suffix in ("", ".csv") else path.mkdir()
    return kind
