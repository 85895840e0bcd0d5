"""OpenCV."""
