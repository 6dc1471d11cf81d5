"""Bytes to messages and back: no socket, no thread, no torch, no logging."""
