"""Measure how many requests the service answers in a second."""

import argparse
import time

import numpy as np
import onnxruntime
from model import SIDE, write_model
from service import ImageService

REQUESTS = 800
SIZES = (1, 1, 1, 4)
"""Numbers of images of requests: most clients send one."""

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--one-thread", action="store_true")
parser.add_argument("--basic", action="store_true", help="only basic optimisations of the graph")
options = parser.parse_args()
session = onnxruntime.SessionOptions() if options.one_thread or options.basic else None
if options.one_thread:
    session.intra_op_num_threads = 1
if options.basic:
    session.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC

service = ImageService(write_model(), session)
generator = np.random.default_rng(0)
requests = [generator.bytes(SIZES[number % len(SIZES)] * SIDE * SIDE * 3) for number in range(REQUESTS)]
for request in requests[:20]:
    service.answer(request)

start = time.perf_counter()
answers = [service.answer(request) for request in requests]
seconds = time.perf_counter() - start
assert [len(answer) for answer in answers] == [SIZES[number % len(SIZES)] for number in range(REQUESTS)]
print(f"requests per second: {REQUESTS / seconds:.2f}")
