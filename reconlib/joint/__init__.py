"""The joint reconstruction of image and coil sensitivities."""
