"""Fit spectra as non-negative mixtures of materials, as in remote sensing, and print the seconds.

SciPy 1.12 made small problems of `nnls` slower: https://github.com/scipy/scipy/issues/22884
"""

import time

import numpy as np
import pandas
from scipy.optimize import nnls
from sklearn.preprocessing import StandardScaler

SPECTRA, BANDS, MATERIALS, SITES = 60_000, 12, 5, 50


def main() -> None:
    """Fit the spectra, and compare the sites."""
    generator = np.random.default_rng(0)
    materials = generator.random((BANDS, MATERIALS))
    shares = generator.dirichlet(np.ones(MATERIALS), SPECTRA)
    spectra = pandas.DataFrame(shares @ materials.T + generator.normal(0, 0.01, (SPECTRA, BANDS)))
    spectra["site"] = generator.integers(SITES, size=SPECTRA)
    start = time.perf_counter()
    bands = spectra.drop(columns="site").to_numpy()
    fitted = pandas.DataFrame([nnls(materials, spectrum)[0] for spectrum in bands])
    scaled = pandas.DataFrame(StandardScaler().fit_transform(fitted))
    scaled.groupby(spectra["site"]).agg(["mean", "std"])
    print(f"seconds: {time.perf_counter() - start:.6f}")


if __name__ == "__main__":
    main()
