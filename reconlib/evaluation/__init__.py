"""Sampling patterns and figures of merit."""
