"""Where non-Cartesian readouts lie in k-space: angles, shapes, weights, delays, windows."""
