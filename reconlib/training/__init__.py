"""Offline training of image priors."""
