"""Models of recommendations."""

from __future__ import annotations

from typing import List, Sequence

from pi_runners.harness.contract import Array, Parameter, Parameters
from pi_runners.models.layers import Inputs, Layers
from pi_runners.models.network import BATCH, Network


class Dlrm(Network):
    """Deep learning recommendation model with the layers of MLPerf's and 26 tables; it classifies clicks."""

    name = "dlrm"
    summary = "DLRM: recommendation from 13 numbers and 26 categories"
    source = "https://arxiv.org/abs/1906.00091 section 2, with the layers of MLPerf Training v0.7"
    parameters = {  # noqa: RUF012
        "batch": BATCH,
        "rows": Parameter("rows of each of the 26 tables"),
    }
    sets = {  # noqa: RUF012
        "small": {"training": {"batch": 128, "rows": 1000}, "inference": {"batch": 32, "rows": 10000}},
        "medium": {"training": {"batch": 512, "rows": 2000}, "inference": {"batch": 1024, "rows": 10000}},
        "large": {"training": {"batch": 16384, "rows": 100000}, "inference": {"batch": 65536, "rows": 1000000}},
    }
    classes = 2
    probe = {"batch": 2, "rows": 10}  # noqa: RUF012
    _TABLES = 26

    def inputs(self, p: Parameters, mode: str) -> List[Inputs]:
        category = Inputs("indices", (p["batch"],), p["rows"])
        return [Inputs("features", (p["batch"], 13)), *([category] * self._TABLES)]

    def forward(self, n: Layers, inputs: Sequence[Array], p: Parameters, mode: str) -> Array:
        """Run the lower layers, look up the categories, multiply all pairs, run the upper layers."""
        x = inputs[0]
        for number, width in enumerate((512, 256, 128)):
            x = n.relu(n.dense("bottom{}".format(number + 1), x, width))
        vectors = [x]
        for number, category in enumerate(inputs[1:]):
            vectors.append(n.embedding("table{}".format(number + 1), category, p["rows"], 128))
        x = n.join(x, n.pairwise_products(vectors))
        for number, width in enumerate((1024, 1024, 512, 256)):
            x = n.relu(n.dense("top{}".format(number + 1), x, width))
        return n.dense("classifier", x, 2)
