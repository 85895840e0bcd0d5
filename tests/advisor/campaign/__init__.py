"""Tests of campaigns: their plans, their execution on each engine, and the collection of results."""
