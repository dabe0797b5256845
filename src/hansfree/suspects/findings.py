"""What looks odd in a set of images, as data that survive a JSON file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hansfree.errors import DataError

Level = Literal["clear", "weak", "none"]
FORMAT = "hansfree.suspects.1"
LEVELS: tuple[Level, ...] = ("clear", "weak", "none")  # what is clear comes first, however odd the rest


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Images of one class that lie together, apart from the others of that class."""

    label: int
    rows: tuple[int, ...]  # of the images, as they were given
    centre: tuple[int, ...]  # the rows that show best what it is, the nearest to its centre first
    oddness: float  # 0 to 1, what clusters are ranked by
    separation: float  # from the rest of the class, in spreads within the two
    chance: float  # the separation that one class in twenty reaches without any groups
    p: float  # that a group stands so far apart in a class without groups; corrected for the number of classes
    surety: float  # AUC: how often the model is surer of one of these than of another image of the class
    distinct: str | None  # the image property that sets it apart most; None where none does
    distinct_auc: float | None
    level: Level
    sentence: str

    @property
    def size(self) -> int:
        """The number of images."""
        return len(self.rows)


@dataclass(frozen=True, kw_only=True)
class Property:
    """How a property of the images goes with a class, and with the model's errors in it."""

    name: str
    label: int
    auc: float  # how often an image of the class has more of it than one of another class
    p: float  # corrected for all properties and classes
    error_auc: float | None  # within the class: how often a wrongly answered image has more of it; None without errors
    error_p: float | None
    oddness: float  # 0 to 2, what properties are ranked by
    level: Level
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """Where the images of one class lie in two dimensions; images that are alike lie together."""

    label: int
    rows: tuple[int, ...]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Suspects:
    """Clusters and properties, the oddest first, in plain words and in the numbers behind them."""

    class_names: tuple[str, ...]
    n: int
    seed: int
    verdict: str
    clusters: tuple[Cluster, ...]
    properties: tuple[Property, ...]
    embeddings: tuple[Embedding, ...]  # of the classes with the oddest clusters
    remarks: tuple[str, ...]

    @property
    def is_loud(self) -> bool:
        """Whether anything stands out clearly."""
        levels = [cluster.level for cluster in self.clusters] + [found.level for found in self.properties]
        return "clear" in levels

    def to_json(self) -> str:
        """Return everything as JSON text."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Suspects:
        """Rebuild what `to_json` wrote."""
        try:
            content = json.loads(text)
            if content.pop("format") != FORMAT:
                raise KeyError("format")
            content["clusters"] = [Cluster(**_tuples(found)) for found in content["clusters"]]
            content["properties"] = [Property(**found) for found in content["properties"]]
            content["embeddings"] = [Embedding(**_tuples(found)) for found in content["embeddings"]]
            return cls(**_tuples(content))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"These are no suspects in the format {FORMAT!r}, or damaged ({error!r}).") from error


def _tuples(content: dict[str, Any]) -> dict[str, Any]:
    """Return the same with tuples for JSON's lists, also for lists in them."""

    def turned(value: Any) -> Any:
        return tuple(map(turned, value)) if isinstance(value, list) else value

    return {key: turned(value) for key, value in content.items()}
