"""Readouts in, complete slices with their context out."""
