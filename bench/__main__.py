"""`python -m bench [NAME…]`: runs the named benchmarks, or all that can run here."""

import argparse
import importlib
import sys

from bench.measure import Report

NAMES = (
    "sandbox",
    "docker",
    "cells",
    "batch",
    "start",
    "search",
    "engine",
    "journal",
    "throughput",
    "pages",
    "gateway",
)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; none means all")
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes: shows that it runs, measures little"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a promise is missed")
    options = parser.parse_args(argv)
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}: there are {', '.join(NAMES)}")
    reports = [Report(name) for name in NAMES if not options.names or name in options.names]
    for report in reports:
        importlib.import_module(f"bench.{report.name}").run(report, quick=options.quick)
    missed = [f"{report.name}: {said}" for report in reports for said in report.missed]
    kept = sum(len(report.kept) for report in reports)
    print(f"\n{kept} kept, {len(missed)} missed", *(f"  {said}" for said in missed), sep="\n", flush=True)
    return 1 if missed and options.strict else 0


if __name__ == "__main__":
    sys.exit(main())
