"""The performance indicators, one file a family."""

from __future__ import annotations

from typing import Dict

from pi_runners.indicators.indicator import Indicator
from pi_runners.indicators.operations.attention import Attention
from pi_runners.indicators.operations.convolution import Convolution
from pi_runners.indicators.operations.dispatch import Dispatch
from pi_runners.indicators.operations.matmul import Matmul
from pi_runners.indicators.operations.memory import Memory, Roofline, Transfer
from pi_runners.indicators.operations.normalisation import Normalisation
from pi_runners.indicators.operations.recurrent import Recurrent
from pi_runners.indicators.operations.row_operations import Elementwise, Embedding, Fft, Reduction, Softmax, Sort
from pi_runners.indicators.processes.communication import Communication
from pi_runners.indicators.processes.input_pipeline import InputPipeline
from pi_runners.indicators.processes.startup import Startup
from pi_runners.indicators.programs.inference import Inference
from pi_runners.indicators.programs.training import TimeToQuality, TrainingStep
from pi_runners.indicators.programs.whole_model import ModelBlock, WholeModel

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
