"""`python -m sandbox.conformance`: the suite over one backend, as a table. Exit status 0 only when nothing failed."""

import argparse
import asyncio
import fnmatch
import sys
import textwrap
from typing import get_args

from sandbox.conformance.suite import CASES, Result, run, stand_for
from sandbox.errors import PolicyError, SandboxUnavailable
from sandbox.policy import Backend, Language, Policy, Runtime

_SIGNS = {
    "holds": "holds",
    "refused by the language": "refused",
    "not claimed": "not claimed",
    "fails": "FAILS",
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sandbox.conformance", description=__doc__)
    parser.add_argument("--backend", choices=get_args(Backend), default="namespaces")
    parser.add_argument("--runtime", choices=get_args(Runtime), default="runc")
    parser.add_argument("--language", choices=get_args(Language), default=None)
    parser.add_argument("--only", default="*", help="pattern of case names, as in 'memory-*'")
    parser.add_argument("--list", action="store_true", help="say what each case proves, and try none")
    return parser.parse_args()


def _show(result: Result) -> None:
    name, sign = result.case.name, _SIGNS[result.verdict]
    reason = textwrap.shorten(result.reason, 2000 if result.verdict == "fails" else 100)
    sys.stdout.write(f"{name:34} {sign:12} {result.milliseconds:8.0f} ms  {reason}\n")
    sys.stdout.flush()


async def _main(wanted: argparse.Namespace) -> int:
    language: Language = wanted.language or ("strict" if wanted.backend == "landlock" else "open")
    try:
        policy = Policy(backend=wanted.backend, runtime=wanted.runtime, language=language)
        stand = await stand_for(policy)
    except (SandboxUnavailable, PolicyError) as error:
        sys.stdout.write(f"this backend cannot be tried here: {error}\n")
        return 2
    cases = [case for case in CASES if fnmatch.fnmatch(case.name, wanted.only)]
    results = []
    async for result in run(stand, cases):
        _show(result)
        results.append(result)
    counts = {sign: sum(result.verdict == verdict for result in results) for verdict, sign in _SIGNS.items()}
    sys.stdout.write(", ".join(f"{count} {sign}" for sign, count in counts.items() if count) + "\n")
    return 0 if results and all(result.is_good for result in results) else 1


if __name__ == "__main__":
    chosen = _arguments()
    if chosen.list:
        for each in CASES:
            needs = f" (needs {', '.join(sorted(each.needs))})" if each.needs else ""
            sys.stdout.write(f"{each.name}: {each.proves}{needs}\n")
        sys.exit(0)
    sys.exit(asyncio.run(_main(chosen)))
