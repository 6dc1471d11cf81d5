"""Simulated scans: anatomy, coils, noise."""
