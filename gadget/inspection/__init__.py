"""What is in a recorded scan, and what the gadget would do with it: as text, pictures and JSON."""
