"""Builds: files, extras and packages that provide the same version of a framework for different hardware."""
