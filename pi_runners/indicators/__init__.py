"""The performance indicators, one file a family."""

from __future__ import annotations

from typing import Dict

from pi_runners.indicators.attention import Attention
from pi_runners.indicators.communication import Communication
from pi_runners.indicators.convolution import Convolution
from pi_runners.indicators.dispatch import Dispatch
from pi_runners.indicators.indicator import Indicator
from pi_runners.indicators.inference import Inference
from pi_runners.indicators.input_pipeline import InputPipeline
from pi_runners.indicators.matmul import Matmul
from pi_runners.indicators.memory import Memory, Roofline, Transfer
from pi_runners.indicators.normalisation import Normalisation
from pi_runners.indicators.recurrent import Recurrent
from pi_runners.indicators.row_operations import Elementwise, Embedding, Fft, Reduction, Softmax, Sort
from pi_runners.indicators.startup import Startup
from pi_runners.indicators.training import TimeToQuality, TrainingStep
from pi_runners.indicators.whole_model import ModelBlock, WholeModel

INDICATORS: Dict[str, Indicator] = {
    indicator.name: indicator
    for indicator in (
        Matmul(),
        Convolution(1),
        Convolution(2),
        Convolution(3),
        Recurrent(),
        Attention(),
        Embedding(),
        Elementwise(),
        Reduction(),
        Softmax(),
        Normalisation(),
        Fft(),
        Sort(),
        TrainingStep(),
        TimeToQuality(),
        Inference(),
        WholeModel(),
        ModelBlock(),
        Memory(),
        Transfer(),
        Roofline(),
        Communication(),
        Startup(),
        Dispatch(),
        InputPipeline(),
    )
}

__all__ = ["INDICATORS", "Indicator"]
