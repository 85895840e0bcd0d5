"""Tests of the executors: the contract that all share, and the parts of each one."""
