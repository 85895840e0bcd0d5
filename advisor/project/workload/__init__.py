"""The workload of a project: profiled, or proposed by its source code."""
