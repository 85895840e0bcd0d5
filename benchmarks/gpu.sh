#!/bin/sh
# Measures the frameworks that are installed on this machine, on its NVIDIA GPU and then on its CPU, without a network.
# Usage: benchmarks/gpu.sh FOLDER [--minutes 9] [--size large|small|both] [--device cuda|cpu|both] [--rounds 4] [--only BLOCK]... [--list]
# Run it again with the same folder to continue; `PYTHON` names another interpreter than `python3`.
set -eu
checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
PYTHONPATH="$checkout${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
export PYTHONPATH PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED
exec "${PYTHON:-python3}" -m benchmarks.gpu "$@"
