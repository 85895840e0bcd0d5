"""The whole models."""

from __future__ import annotations

from typing import Dict

from pi_runners.models.language import Bert, Encoder, Gpt2, SequenceToSequence
from pi_runners.models.network import Network
from pi_runners.models.recommendation import Dlrm
from pi_runners.models.vision import MobileNetV2, ResNet18, ResNet50, UNet, VisionTransformer

NETWORKS: Dict[str, Network] = {
    network.name: network
    for network in (
        ResNet18(),
        ResNet50(),
        MobileNetV2(),
        VisionTransformer(),
        UNet(),
        Bert(),
        Encoder(),
        Gpt2(),
        SequenceToSequence(),
        Dlrm(),
    )
}
