"""The spline that corrects intensities, fitted on other images than it is used on."""

import numpy as np
import pytest
import torch

from reconlib.evaluation.intensity_calibration import (
    CalibrationError,
    _rising,
    calibrated,
    fit_intensity_curve,
)
from reconlib.evaluation.metrics import fit_scale, psnr_after_scale_fit
from reconlib.evaluation.study import Case, FullScan, MethodImage


def bent(image):
    """A bias that depends on brightness alone: dark parts come out too dark."""
    top = float(np.percentile(image.numpy(), 99.9))
    return (image / top).clamp_min(0) ** 1.4 * top


def picture(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(1, 1, 40, 30, generator=generator)


def test_a_bias_that_depends_on_brightness_alone_is_undone_on_another_image():
    curve = fit_intensity_curve([(bent(picture(1)), picture(1)), (bent(picture(2)), picture(2))])
    other = picture(3)
    before = float(psnr_after_scale_fit(bent(other), other))
    after = float(psnr_after_scale_fit(curve(bent(other)), other))
    assert before < 30
    assert after > before + 15


def test_the_brightness_of_a_scan_does_not_matter():
    curve = fit_intensity_curve([(bent(picture(1)), picture(1))])
    image = bent(picture(4))
    assert torch.allclose(curve(1000 * image), 1000 * curve(image), rtol=1e-4)
    brighter = fit_intensity_curve([(7 * bent(picture(1)), 0.1 * picture(1))])
    assert torch.allclose(brighter(image), curve(image), atol=1e-5)


def test_beyond_the_range_of_the_fit_the_curve_goes_straight_on():
    curve = fit_intensity_curve([(picture(1), picture(1))])
    image = picture(5)
    image[..., 0, 0] = 10.0  # one pixel, above the 99.9th percentile of the image
    assert float(curve(image)[..., 0, 0]) == pytest.approx(10.0, abs=0.05)
    assert float(curve(-image).min()) == 0.0


def test_too_few_intensities_are_refused():
    with pytest.raises(
        CalibrationError, match="at 4 levels of intensity or more; these images have them at 1"
    ):
        fit_intensity_curve([(torch.ones(1, 1, 8, 8), torch.ones(1, 1, 8, 8))])
    with pytest.raises(CalibrationError, match="these images have them at 0"):
        fit_intensity_curve([])
    with pytest.raises(CalibrationError, match="an image of zeros or NaNs"):
        fit_intensity_curve([(picture(1) * float("nan"), picture(1))])


def test_no_two_intensities_change_places():
    image = picture(1)
    wavy = image + 0.3 * torch.sin(20 * image)  # falls in places
    curve = fit_intensity_curve([(image, wavy)])
    ramp = torch.linspace(0, 1.2, 1200).reshape(1, 1, 40, 30)
    corrected = curve(ramp).flatten().numpy()
    assert (np.diff(corrected) >= -1e-6).all()
    # where the curve was pooled it is the isotonic regression, which leaves the overall mean as it is
    assert float(curve(image).mean()) == pytest.approx(
        float((wavy * fit_scale(wavy, image)).mean()), rel=0.01
    )


def test_pooling_is_isotonic_regression():
    pooled = _rising(np.array([1.0, 3.0, 2.0, 4.0, 0.0]), np.array([1, 1, 3, 1, 1]))
    assert pooled.tolist() == pytest.approx([1.0, *[13 / 6] * 4])
    assert _rising(np.array([1.0, 2.0, 5.0]), np.array([1, 1, 1])).tolist() == [1.0, 2.0, 5.0]


def case(seed, pattern="p"):
    samples = torch.ones(1, 2, 40, 30, dtype=torch.complex64)
    scan = FullScan(
        name=f"scan {seed}",
        samples=samples,
        noise_std=0.1,
        noise_source="made up",
        reference=picture(seed),
    )
    return Case(scan=scan, pattern=pattern, mask=torch.ones(1, 1, 40, 30, dtype=torch.bool))


def test_a_calibrated_method_fits_once_per_pattern_and_only_on_the_other_cases():
    runs = []

    def method(one):
        runs.append((one.scan.name, one.pattern))
        return MethodImage(image=bent(one.reference), coils=one.scan.samples, facts={"weight": 1.0})

    others = {"p": [case(1), case(2)], "q": [case(1, "q")]}
    corrected = calibrated(method, lambda one: others[one.pattern])
    result = corrected(case(3))
    corrected(case(4))
    corrected(case(3, "q"))
    assert runs == [
        ("scan 3", "p"),
        ("scan 1", "p"),
        ("scan 2", "p"),
        ("scan 4", "p"),
        ("scan 3", "q"),
        ("scan 1", "q"),
    ]
    expected = fit_intensity_curve([(bent(picture(s)), picture(s)) for s in (1, 2)])(bent(picture(3)))
    assert torch.equal(result.image, expected)
    assert result.facts == {"weight": 1.0}
    assert result.coils is None
