"""Filters signals: removes their slow part and their outliers, and returns their energy."""

import numpy as np


def energy(signal, window=64):
    """Return the energy of a signal without its moving average and its largest values."""
    sums = np.cumsum(signal)
    average = (sums[window:] - sums[:-window]) / window
    rest = np.sort(np.abs(signal[window:] - average))
    spectrum = np.fft.rfft(rest[: len(rest) * 9 // 10])
    return float(np.sum(np.abs(spectrum) ** 2))
