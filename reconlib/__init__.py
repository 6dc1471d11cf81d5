"""Joint reconstruction of image and coil sensitivities with energy-based priors, in torch only."""
