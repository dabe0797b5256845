"""Try to break runs: `python -m benchmarks.stress`.

Every trial is a line of ``WORK/trials.jsonl``; those that are there are not repeated, so a stopped run resumes. At the
end, the counts go to ``results/stress.json`` and the page ``results/stress.md``. A trial is one of

- kill: `hansfree run` is killed (SIGKILL, SIGTERM or Ctrl-C) at random moments and started again until it ends;
- damage: a file of a finished or half-finished run directory is damaged, and the run is started again;
- input: `hansfree check` of a run file, table, image or weights file with a fault, and `run` if it is accepted;
- disk: the system refuses to write beyond so many bytes, later it does not;
- two: two processes run one directory at the same time;
- change: an image changes while a run is stopped.

It is broken if it ends in an internal error, in other results, in half-written files, or not within a minute of
processor time. Results are all files of a run directory but for seconds and the paths of the run file.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot  # noqa: F401
import torch
import torch._decomp.decompositions_for_jvp
import torch._dynamo
import yaml
from PIL import Image
from tests.pipeline.user import half_written, make_user, run_content

import hansfree.api  # noqa: F401  (this and the libraries above: what a run imports, so that a fork starts at once)
from benchmarks.speed.measures import commit
from benchmarks.stress.faults import damage_file, spoil_input
from hansfree import cli

SECONDS = 60  # of processor time, after which a process hangs
PATIENCE = 900.0  # seconds after which it hangs whatever it does; the machine may be busy
METHODS = ["vanilla", "p-clarc", "rr-clarc", "match"]
COUNTS = {"kill": 200, "damage": 250, "input": 1000, "disk": 20, "two": 10, "change": 10}
ENDED, FAILED, INTERNAL = "same results", "clear error", "INTERNAL ERROR"


@dataclass(frozen=True)
class Trial:
    """What was done, and how it ended; ``kills`` counts the processes that were killed in it."""

    kind: str
    seed: int
    done: str
    outcome: str
    message: str = ""
    kills: int = 0
    commit: str | None = None


class Process:
    """A fork of this process that runs the command line."""

    def __init__(self, arguments: list[str], folder: Path, *, limit: int | None = None) -> None:
        self.log = folder / "output.log"
        self.start = time.monotonic()
        self.code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            self._run(arguments, folder, limit)

    def _run(self, arguments: list[str], folder: Path, limit: int | None) -> None:
        code = 1
        try:
            os.chdir(folder)
            output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            if limit is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.argv = ["hansfree", *arguments]
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException as error:
            sys.stderr.write(f"{error!r}\n")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def wait(self, seconds: float = PATIENCE) -> bool:
        """Wait for the end, at most so long; return whether it ended."""
        while self.code is None and time.monotonic() - self.start < seconds:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if ended else None
            time.sleep(0.005)
        return self.code is not None

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal, and SIGKILL if it does not end by that."""
        os.kill(self.pid, number)
        if not self.wait(time.monotonic() - self.start + 20):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    @property
    def outcome(self) -> tuple[str, str]:
        """How it ended, and its last words."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        words = text.strip().splitlines()[-1:] or [""]
        if self.code is None:
            self.kill()
        if self.code in (None, -signal.SIGKILL, -signal.SIGXCPU):
            return "HANGS", words[0]
        if "Internal error" in text or "Traceback" in text or self.code not in (0, 1, 2):
            return INTERNAL, f"exit code {self.code}: {words[0]}"
        return (ENDED if self.code == 0 else FAILED), "" if self.code == 0 else words[0]


class World:
    """A small user's folder, a finished run in it, and a half-finished one."""

    def __init__(self, work: Path) -> None:
        self.work, self.user = work, work / "user"
        self.content = run_content(correction={"methods": METHODS})
        self.finished, self.half = self.user / "run", work / "half"
        if not self.user.exists():
            temporary = work / "making"
            shutil.rmtree(temporary, ignore_errors=True)
            process = _fork(partial(make_user, temporary))
            process.wait()
            temporary.rename(self.user)
            (self.user / "run.yaml").write_text(yaml.safe_dump(self.content))
        if not (self.finished / "results.csv").exists():
            process = Process(["run", "run.yaml"], self.user)
            if not process.wait() or process.code:
                sys.exit(f"The undisturbed run failed: {process.log.read_text()}")
        if not self.half.exists():
            shutil.copytree(self.finished, self.half)
            for name in ("rr-clarc", "match"):
                (self.half / "stages" / f"{name}.json").unlink(missing_ok=True)
        self.results = results(self.finished)

    def copy(self, name: str, *, run: Path | None = None) -> Path:
        """Return a copy of the user's folder, on request with a run directory in it.

        Images are links: who changes one unlinks it first.
        """
        folder = self.work / "trials" / name / "user"  # reports name the last folder
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.user, folder, ignore=shutil.ignore_patterns("run", "output.log", "images"))
        shutil.copytree(self.user / "images", folder / "images", copy_function=os.link)
        if run is not None:
            shutil.copytree(run, folder / "run", copy_function=shutil.copy2)
        return folder

    def verdict(self, process: Process, folder: Path, *, is_damaged: bool = False) -> tuple[str, str]:
        """Return how a run ended: it must have the results of the undisturbed one, and no half-written file.

        Args:
            is_damaged: A file was damaged on purpose; it stays so where the run does not need it any more.
        """
        process.wait()
        outcome, message = process.outcome
        if outcome == ENDED and (found := results(folder / "run")) != self.results:
            names = sorted(name for name in {*found, *self.results} if found.get(name) != self.results.get(name))
            return "OTHER RESULTS", ", ".join(names)
        if outcome == ENDED and not is_damaged and (half := [str(path) for path in half_written(folder / "run")]):
            return "HALF WRITTEN", ", ".join(half)
        return outcome, message


def results(run: Path) -> dict[str, bytes]:
    """Return what a run directory holds for its user, by name, without what differs between two undisturbed runs."""
    found = {}
    for path in sorted(path for path in run.rglob("*") if path.is_file()):
        name = path.relative_to(run).as_posix()
        if name in ("log.jsonl", "run.yaml", "config.yaml") or name.startswith((".", "activations/", "stages/")):
            continue
        content = path.read_bytes()
        if name == "results.json":
            meta = (everything := json.loads(content))["meta"]
            del meta["seconds"], meta["model"]
            content = json.dumps(everything).encode()
        elif name == "report.html":
            content = re.sub(rb'<tr><th scope="row">[^<]*</th><td class="number">[0-9.]+</td></tr>', b"", content)
        found[name] = content
    return found


def _fork(work: Callable[[], Any]) -> Process:
    """Run a function in a fork, so that this process stays without threads of torch."""
    process = Process.__new__(Process)
    process.start, process.code, process.pid = time.monotonic(), None, os.fork()
    if process.pid == 0:
        work()
        os._exit(0)
    return process


def kill(world: World, seed: int, rng: random.Random) -> Trial:
    """Kill a run up to ten times, later and later, then let it end."""
    folder, killed = world.copy(f"kill-{seed}"), Counter[str]()
    for attempt in range(10):
        process = Process(["run", "run.yaml"], folder)
        if process.wait(rng.uniform(0.05, 1.5) * (1 + attempt / 2)):
            break
        number = rng.choices((signal.SIGKILL, signal.SIGTERM, signal.SIGINT), weights=(8, 1, 1))[0]
        process.kill(number)
        killed[number.name] += 1
    outcome, message = world.verdict(Process(["run", "run.yaml"], folder), folder)
    done = ", ".join(f"{count} {name}" for name, count in killed.items())
    return Trial("kill", seed, done, outcome, message, killed.total())


def damage(world: World, seed: int, rng: random.Random) -> Trial:
    """Damage a file of a run directory, and run again."""
    folder = world.copy(f"damage-{seed}", run=rng.choice((world.finished, world.half)))
    done = damage_file(folder / "run", rng)
    return Trial("damage", seed, done, *world.verdict(Process(["run", "run.yaml"], folder), folder, is_damaged=True))


def check_input(world: World, seed: int, rng: random.Random) -> Trial:
    """Check a bad input; nothing may be written. What is accepted is run."""
    folder = world.copy(f"input-{seed}")
    done = spoil_input(folder, world.content, rng)
    process = Process(["check", "run.yaml"], folder)
    process.wait()
    outcome, message = process.outcome
    if (folder / "pickle-was-executed").exists() or (folder / "run" / "config.yaml").exists():
        outcome = "EXECUTED OR WRITTEN"
    if outcome == ENDED and done not in ("run file", "raw"):  # a run file may ask for any amount of work
        process = Process(["run", "run.yaml"], folder)
        process.wait()
        outcome, message = process.outcome
        done = f"{done}, run"
    return Trial("input", seed, done, "accepted" if outcome == ENDED else outcome, message)


def disk(world: World, seed: int, rng: random.Random) -> Trial:
    """Let the disk be full at some size of files, then not."""
    folder, limit = world.copy(f"disk-{seed}"), int(10 ** rng.uniform(2.5, 5.5))
    process = Process(["run", "run.yaml"], folder, limit=limit)
    process.wait()
    outcome, message = process.outcome
    if outcome in (ENDED, FAILED) and not list(half_written(folder / "run")):
        outcome, message = world.verdict(Process(["run", "run.yaml"], folder), folder)
    return Trial("disk", seed, f"{limit} bytes per file", outcome, message)


def two(world: World, seed: int, rng: random.Random) -> Trial:
    """Start two processes on one directory."""
    folder, other = world.copy(f"two-{seed}"), world.work / "trials" / f"two-{seed}-log"
    other.mkdir(exist_ok=True)
    first = Process(["run", "run.yaml"], folder)
    time.sleep(rng.uniform(0, 1.5))
    second = Process(["run", str(folder / "run.yaml")], other)
    second.wait()
    refused, message = second.outcome
    outcome, last = world.verdict(first, folder)
    if ENDED not in (outcome, refused) or {outcome, refused} - {ENDED, FAILED}:
        return Trial("two", seed, "", f"{outcome} / {refused}", f"{last} {message}")
    return Trial("two", seed, "", *world.verdict(Process(["run", "run.yaml"], folder), folder))


def change(world: World, seed: int, rng: random.Random) -> Trial:
    """Stop a run, change an image, run again: an error that says so; with the old image, the old results."""
    folder = world.copy(f"change-{seed}")
    process = Process(["run", "run.yaml"], folder)
    process.wait(rng.uniform(0.5, 3))
    if process.code is None:
        process.kill()
    path = rng.choice(sorted((folder / "images").iterdir()))
    content, times = path.read_bytes(), path.stat()
    with Image.open(path) as picture:
        turned = picture.convert("RGB").rotate(180)
    path.unlink()
    turned.save(path)
    again = Process(["run", "run.yaml"], folder)
    again.wait()
    outcome, message = again.outcome
    if (outcome == FAILED and path.stem in message) or not (folder / "run" / "config.yaml").exists():
        path.unlink()
        path.write_bytes(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        outcome, message = world.verdict(Process(["run", "run.yaml"], folder), folder)
    elif outcome == ENDED and not (folder / "run" / "images.npz").exists():
        outcome = "NOT NOTICED"
    return Trial("change", seed, path.name, outcome, message)


KINDS = {"kill": kill, "damage": damage, "input": check_input, "disk": disk, "two": two, "change": change}


def trials(world: World, wanted: dict[str, int], done: list[Trial]) -> Iterator[Trial]:
    """Run what is missing, all kinds in turn; kills are counted by processes, the others by trials."""
    counts, seeds = Counter[str](), Counter[str]()
    for trial in done:
        counts[trial.kind] += max(1, trial.kills)
        seeds[trial.kind] = max(seeds[trial.kind], trial.seed + 1)
    while missing := [kind for kind in KINDS if counts[kind] < wanted[kind]]:
        kind = min(missing, key=lambda kind: counts[kind] / wanted[kind])
        seed = seeds[kind]
        trial = KINDS[kind](world, seed, random.Random(f"{kind}-{seed}"))
        if trial.outcome == trial.outcome.lower():  # broken ones stay, to look at
            for folder in (world.work / "trials").glob(f"{kind}-{seed}*"):
                shutil.rmtree(folder, ignore_errors=True)
        yield trial
        counts[kind] += max(1, trial.kills)
        seeds[kind] += 1


def write_summary(done: list[Trial], folder: Path, command: str) -> None:
    """Write the counts, and the page with them."""
    outcomes = {kind: Counter(trial.outcome for trial in done if trial.kind == kind) for kind in KINDS}
    broken = [asdict(trial) for trial in done if trial.outcome != trial.outcome.lower()]
    kills = sum(trial.kills for trial in done)
    commits = sorted({trial.commit or "unknown" for trial in done})
    summary = {"command": command, "commits": commits, "kills": kills, "outcomes": outcomes, "broken": broken}
    (folder / "stress.json").write_text(json.dumps(summary, indent=2) + "\n")
    titles = {
        "kill": f"`run` killed at random moments ({kills} kills) until it ends",
        "damage": "one damaged file in a finished or half-finished run directory, then `run`",
        "input": "`check` of a bad run file, table, image or weights file; `run` of what it accepts",
        "disk": "a full disk, then space",
        "two": "two processes on one run directory",
        "change": "an image changed while a run was stopped",
    }
    lines = [
        "# Stress tests",
        "",
        f"`{command}` tries to break runs of a small network, with methods of both families. A trial must end in",
        "the results of an undisturbed run (scores, figures, weights), byte for byte, or in one clear error; inputs",
        "that are valid after all are accepted. *Broken* are internal errors, other results, half-written files and",
        "processes that hang.",
        "",
        f"Commit of the code: {', '.join(commits)}.",
        "",
    ]
    lines += ["| trial | trials | same results | accepted | clear error | broken |", "|---|---|---|---|---|---|"]
    for kind, found in outcomes.items():
        good = [found[name] for name in (ENDED, "accepted", FAILED)]
        cells = [titles[kind], found.total(), *good, found.total() - sum(good)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    (folder / "stress.md").write_text("\n".join(lines) + "\n")


def main() -> None:
    """Run the trials that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind, count in COUNTS.items():
        parser.add_argument(f"--{kind}", type=int, default=count, help=f"default {count}")
    parser.add_argument("--work", type=Path, default=Path("work/stress"), help="folder of the trials")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of stress.json and stress.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    work: Path = options.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    world, log = World(work), work / "trials.jsonl"
    done = [Trial(**json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []
    for trial in trials(world, {kind: getattr(options, kind) for kind in KINDS}, done):
        done.append(replace(trial, commit=commit()))
        with log.open("a") as file:
            file.write(json.dumps(asdict(done[-1])) + "\n")
        if trial.outcome != trial.outcome.lower():
            print(trial, flush=True)
    changed = [f"--{kind} {count}" for kind in KINDS if (count := getattr(options, kind)) != COUNTS[kind]]
    write_summary(done, options.results, "make stress" + (f' ARGS="{" ".join(changed)}"' if changed else ""))
    print((options.results / "stress.md").read_text())
    sys.exit(any(trial.outcome != trial.outcome.lower() for trial in done))


if __name__ == "__main__":
    main()
