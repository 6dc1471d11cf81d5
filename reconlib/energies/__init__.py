"""Energies: image priors and the smoothness of coil maps."""
