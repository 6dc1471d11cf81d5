"""The process that reconstructs for a server, and how the two talk."""
