"""The same question over 1 MB and over 1 GB of evidence: from submit to the first executed cell."""

import os
import tempfile
from pathlib import Path

from bench.evidence import write_log
from bench.home import Home, a_request
from bench.measure import Report, interleaved, median, milliseconds, times

_MB = 1_000_000
_BOOK = "# %% look\nprint(len(evidence), evidence.total_bytes)\n# %% answer\nSUBMIT(answer='seen')\n"


def run(report: Report, *, quick: bool = False) -> None:
    large = 20 * _MB if quick else 1_000 * _MB
    report.begin(f"submit to first cell, 1 MB against {large // _MB:,} MB of evidence")
    with tempfile.TemporaryDirectory(prefix="custody-bench-") as folder, Home(folder=Path(folder)) as home:
        small_log = write_log(Path(folder) / "small.log", size_bytes=_MB)
        large_log = write_log(Path(folder) / "large.log", size_bytes=large)
        request = a_request(playbook=_BOOK)

        def first_cell(log: Path, *, fresh: bool = False) -> float:
            if fresh:
                os.utime(log)  # another manifest: its content digest has to be taken anew, while the job runs
            return home.run(request, evidence=(log,)).moment("cell_finished") / 1000

        cases = {
            "1 MB": lambda: first_cell(small_log),
            "large": lambda: first_cell(large_log),
            "fresh": lambda: first_cell(large_log, fresh=True),
        }
        interleaved(cases, rounds=1)  # starts the zygote, seals the evidence
        p50 = {name: median(taken) for name, taken in interleaved(cases, rounds=3 if quick else 15).items()}
    ratio = p50["large"] / p50["1 MB"]
    report.table(
        ("evidence", "ms to first cell", "ratio"),
        [
            ("1 MB", milliseconds(p50["1 MB"]), "1x"),
            (f"{large // _MB:,} MB", milliseconds(p50["large"]), times(ratio)),
            ("  hashed meanwhile", milliseconds(p50["fresh"]), times(p50["fresh"] / p50["1 MB"])),
        ],
    )
    report.at_most("large / small evidence", ratio, 1.2)
    report.at_most("large and not yet hashed / small evidence", p50["fresh"] / p50["1 MB"], 1.2)
