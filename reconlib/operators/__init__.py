"""Linear operators of MR physics and the sine transform."""
