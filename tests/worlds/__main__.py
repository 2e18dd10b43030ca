"""`python -m tests.worlds SEED …` or `FIRST-LAST`: one line per world, exit 1 if one fails."""

import argparse
import logging
import sys
import time
import traceback

from tests.worlds.failure import WorldError
from tests.worlds.world import run_seed


def main(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests.worlds", description=__doc__)
    parser.add_argument("seeds", nargs="+", metavar="SEED", help="a number, or a range A-B")
    parser.add_argument("-v", "--verbose", action="store_true", help="what happened in each world")
    parser.add_argument("--digests", action="store_true", help="only what must be repeatable")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    n_failed = n = 0
    for seed in _seeds(options.seeds):
        n += 1
        started = time.process_time()
        try:
            figures = run_seed(seed)
        except WorldError as exc:
            n_failed += 1
            print(f"FAILED {exc}", flush=True)
            continue
        except Exception:  # noqa: BLE001 – the other seeds go on
            n_failed += 1
            print(f"FAILED seed {seed}: {traceback.format_exc()}", flush=True)
            continue
        took_s = time.process_time() - started
        line = (
            f"seed {seed}: {figures.virtual_s:.0f} s, {figures.n_batches} batches, "
            f"{figures.n_cycles} cycles, {figures.n_binds} binds, {figures.n_evictions} evictions, "
            f"{figures.n_starts} starts, log {figures.digest[:16]}"
        )
        print(line if options.digests else f"{line}, in {took_s:.2f} s", flush=True)
        if options.verbose:
            print("\n".join(figures.told))
    print(f"{n - n_failed} passed, {n_failed} failed")
    return 1 if n_failed else 0


def _seeds(words):
    for word in words:
        first, _, last = word.partition("-")
        yield from range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
