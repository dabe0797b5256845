"""What a benchmark ran on: one run can go on from another only where all of it is the same."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

import hansfree
from hansfree._internal.hashing import fingerprint

_LIBRARIES = ("hansfree", "torch", "torchvision", "numpy", "scikit-learn", "zennit")


def machine_facts() -> dict[str, str | int]:
    """Return processor, memory, threads, system, versions, and a hash of hansfree's own code."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "memory_gb": _memory_gb(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in _LIBRARIES},
        "code": _hash_code(),
        "precision": "float32",
    }


def commit() -> str | None:
    """Return the commit of a checkout, for people; the hash of the code knows local changes too."""
    home = Path(__file__).parent
    try:
        subprocess.run(["git", "ls-files", "--error-unmatch", __file__], cwd=home, capture_output=True, check=True)
        done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=home, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError):  # no git, or a package that was installed
        return None
    return done.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gb() -> int:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return 0  # Windows does not tell
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9)


def _hash_code() -> str:
    root = Path(hansfree.__file__).parent
    files = sorted(root.rglob("*.py"))
    return fingerprint(*(text for path in files for text in (str(path.relative_to(root)), path.read_text("utf-8"))))
