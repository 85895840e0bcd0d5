"""Filters random signals, and prints how many it filters in a second."""

import argparse
import time

import numpy as np
from filter import energy

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--signals", type=int, required=True, help="number of signals")
signals = np.random.default_rng(1).normal(size=(parser.parse_args().signals, 20_000))
energy(signals[0])

started = time.perf_counter()
total = sum(energy(signal) for signal in signals)
seconds = time.perf_counter() - started
print(f"energy: {total:.6g}")
print(f"throughput: {len(signals) / seconds:.1f} signals/s")
