"""Draws from the density that an energy defines."""
