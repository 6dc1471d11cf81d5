"""Scans kept on disk while they come in."""
