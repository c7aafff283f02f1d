"""`make mutants`: take out one guard at a time, run the tests that hold it, print what became of each.

Exit code 1: a mutant survived; 2: one is broken, or the table no longer fits the code.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue

from scripts.mutants.scratch import ROOT, End, Scratch, Verdict, scratch
from scripts.mutants.table import Guard, Rotten, guards, redundant


def main() -> int:
    chosen = _arguments()
    # Also in the background of a shell, which ignores interrupts: so that copies and servers go.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted = [g for g in guards() if all(w in f"{g.rule} {g.file} {g.name}".lower() for w in chosen.k.lower().split())]
    if chosen.list:
        _list(wanted)
        return 0
    if not wanted:
        print(f"no guard is called «{chosen.k}»; --list names them all")
        return 2
    try:
        for guard in wanted:
            guard.mutate((ROOT / guard.file).read_text())
    except (Rotten, OSError) as error:
        print(f"the table no longer fits the code: {error}")
        return 2
    try:
        return _run(wanted, chosen.jobs, verbose=chosen.verbose)
    except KeyboardInterrupt:
        print("stopped")
        return 130


def _run(wanted: Sequence[Guard], jobs: int, *, verbose: bool) -> int:
    started = time.monotonic()
    tests = sorted({test for guard in wanted for test in guard.tests})
    with ExitStack() as stack:
        free: SimpleQueue[Scratch] = SimpleQueue()
        for _ in range(jobs):
            free.put(stack.enter_context(scratch()))
        place = free.get()
        print(f"without a mutant: {len(tests)} tests and groups of tests …", flush=True)
        whole = place.run(tests)
        free.put(place)
        if whole.end is not End.SURVIVED:
            print(f"they fail on the code as it is: {whole.why}")
            return 2
        print(f"they pass, in {whole.seconds:.0f} s\n")

        def one(guard: Guard) -> Verdict:
            mine = free.get()
            try:
                return mine.mutate(guard)
            finally:
                free.put(mine)

        width = max(len(g.name) for g in wanted)
        verdicts = []
        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        try:
            for guard, verdict in zip(wanted, pool.map(one, wanted), strict=True):
                verdicts.append(verdict)
                print(f"{guard.name:<{width}}  {guard.rule:>9}  {verdict.end:<8}  {verdict.seconds:5.1f} s", flush=True)
                if verdict.end is End.BROKEN or (verbose and verdict.why):
                    print(f"    {verdict.why}", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)  # stopped early: the one that runs ends, no other begins
    return _total(verdicts, time.monotonic() - started)


def _total(verdicts: Sequence[Verdict], seconds: float) -> int:
    count = {end: sum(v.end is end for v in verdicts) for end in End}
    figures = ", ".join(f"{n} {end}" for end, n in count.items())
    print(f"\n{len(verdicts)} mutants: {figures}; {seconds / 60:.1f} min")
    if count[End.SURVIVED]:
        return 1
    return 2 if count[End.BROKEN] else 0


def _list(wanted: Sequence[Guard]) -> None:
    width = max((len(g.name) for g in wanted), default=0)
    for guard in wanted:
        print(f"{guard.name:<{width}}  {guard.rule:>9}  {guard.file}")
    print("\nwithout a mutant of their own, since another guard stands behind them:")
    for row in redundant():
        print(f"{row.name} ({row.file}): {row.reason}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/mutants.sh", description=__doc__)
    parser.add_argument("-k", default="", metavar="WORDS", help="only those whose rule, file and name have these words")
    parser.add_argument("-j", dest="jobs", type=int, default=1, metavar="N", help="so many at a time")
    parser.add_argument("-v", dest="verbose", action="store_true", help="say which test failed, and how")
    parser.add_argument("--list", action="store_true", help="name the guards and run nothing")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
