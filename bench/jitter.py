"""What the tuning of a loop is worth: how late it wakes up with every core busy, tuned against untuned.

    python bench/jitter.py [--seconds 4] [--rate 50]

Interleaved; prints the median over the rounds of the ratios of p99. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics

from andante.doctor.machine import load, measure_jitter

ROUNDS = 7
PRIORITY = 50
TARGET = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--rate", type=float, default=50.0, help="wake-ups per second")
    options = parser.parse_args()
    ratios = []
    with load(len(os.sched_getaffinity(0))):
        for _ in range(ROUNDS):
            plain = measure_jitter(options.rate, options.seconds)
            tuned = measure_jitter(options.rate, options.seconds, PRIORITY)
            ratios.append(tuned.p99 / plain.p99)
            print(f"untuned: {plain}; SCHED_FIFO {PRIORITY}: {tuned}")
    value = round(statistics.median(ratios), 4)
    record = {"name": "loaded jitter p99, tuned / untuned", "value": value, "target": TARGET}
    print(json.dumps(record | {"holds": value < TARGET}))


if __name__ == "__main__":
    main()
