"""Values of images as pixels, and back."""

import math

import numpy as np
import pytest

from gadget.errors import OwnProtocolError
from gadget.pixels import PixelType, component_of, integer_pixels

INTEGERS = (PixelType.UINT16, PixelType.INT16)


@pytest.mark.parametrize("pixel_type", INTEGERS)
def test_phases_are_4096_steps_of_a_turn_as_on_siemens_scanners(pixel_type):
    """Siemens: slope 2 and intercept -4096 in units of pi / 4096, so pixel p is (2 p - 4096) pi / 4096."""
    steps = np.arange(4096)
    phases = ((2 * steps - 4096) * np.pi / 4096).astype(np.float32)
    pixels, meta = integer_pixels(phases, "phase", pixel_type)
    assert pixels.tolist() == steps.tolist()
    assert pixels.dtype == np.dtype(pixel_type.value)
    assert meta == {"RescaleSlope": math.pi / 2048, "RescaleIntercept": -math.pi}


def test_a_phase_comes_back_to_half_a_step_and_pi_is_minus_pi():
    phases = np.linspace(-np.pi, np.pi, 10_001, dtype=np.float32)
    pixels, meta = integer_pixels(phases, "phase", PixelType.UINT16)
    assert int(pixels.max()) == 4095
    back = pixels * meta["RescaleSlope"] + meta["RescaleIntercept"]
    apart = np.abs(np.angle(np.exp(1j * (back - phases.astype(float)))))
    assert apart.max() <= np.pi / 4096 * 1.001
    assert pixels[-1] == pixels[0] == 0
    assert pixels[5000] == 2048


@pytest.mark.parametrize("pixel_type", INTEGERS)
def test_real_parts_keep_their_sign_about_2048(pixel_type):
    values = np.array([[-3.0, 0.0, 1.5, 2.9]], np.float32)
    pixels, meta = integer_pixels(values, "real", pixel_type)
    assert pixels[0, 1] == 2048
    assert pixels.min() == 1
    back = pixels * meta["RescaleSlope"] + meta["RescaleIntercept"]
    assert np.abs(back - values).max() <= meta["RescaleSlope"] / 2
    clipped, meta = integer_pixels(values, "real", pixel_type, slope=0.001)
    assert clipped.tolist() == [[0, 2048, 3548, 4095]]
    assert meta["ClippedPixels"] == 2


def test_complex_images_have_no_integer_pixels():
    with pytest.raises(OwnProtocolError, match=r"sent as int16; complex images have no integer pixels"):
        integer_pixels(np.zeros((2, 2), np.float32), "complex", PixelType.INT16)


def test_components_are_numpys():
    image = np.array([[3 - 4j, -2, 0, 1j]], np.complex64)
    assert component_of(image, "magnitude").tolist() == [[5, 2, 0, 1]]
    np.testing.assert_allclose(
        component_of(image, "phase"), [[math.atan2(-4, 3), math.pi, 0, math.pi / 2]], rtol=1e-6
    )
    assert component_of(image, "real").tolist() == [[3, -2, 0, 0]]
    assert component_of(image, "complex").tolist() == image.tolist()
    for component in ("magnitude", "phase", "real"):
        assert component_of(image, component).dtype == np.float32
