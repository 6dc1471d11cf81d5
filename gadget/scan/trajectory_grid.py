"""The grid of pixels that non-Cartesian readouts are reconstructed on.

The rules:

* **Field of view**: that of ``reconSpace``. Readouts that are oversampled cover more; what lies out there is
  taken to be empty.
* **Pixel**: that of ``encodedSpace`` (field of view over matrix), as it says how far out k-space is measured;
  an image of another matrix is interpolated afterwards, as for Cartesian scans.
* **Along y** some converters write the number of spokes or interleaves into the encoded matrix. Where the
  encoded pixels are not square while those of ``reconSpace`` are, the encoded pixel along x counts for both.
* **Twice the columns over one field of view** (encoded matrix 2 n, recon matrix n, the same field of view)
  is what it says, pixels of half the size, but warned about: a converter may have forgotten to double it.
"""

from dataclasses import dataclass

from gadget.scan.header import Encoding


@dataclass(frozen=True, slots=True)
class TrajectoryGrid:
    """Pixels of the reconstruction, along x and y."""

    matrix: tuple[int, int]
    fov_mm: tuple[float, float]
    notes: tuple[str, ...] = ()

    @property
    def pixel_mm(self) -> tuple[float, float]:
        """Size of a pixel along x and y."""
        return self.fov_mm[0] / self.matrix[0], self.fov_mm[1] / self.matrix[1]


def trajectory_grid(encoding: Encoding) -> TrajectoryGrid:
    """Choose the grid of an encoding by the rules above."""
    encoded, recon = encoding.encoded, encoding.recon
    pixel_x, pixel_y = (encoded.fov_mm[axis] / encoded.matrix[axis] for axis in (0, 1))
    recon_x, recon_y = (recon.fov_mm[axis] / recon.matrix[axis] for axis in (0, 1))
    notes = []
    if not _alike(pixel_x, pixel_y) and _alike(recon_x, recon_y):
        notes.append(
            f"encodedSpace has {encoded.matrix[1]} lines over {encoded.fov_mm[1]:g} mm, pixels that are not "
            f"square: taken as a number of readouts, and pixels of {pixel_x:.4g} mm along both axes"
        )
        pixel_y = pixel_x
    if encoded.matrix[0] == 2 * recon.matrix[0] and _alike(encoded.fov_mm[0], recon.fov_mm[0]):
        notes.append(
            f"the header encodes {encoded.matrix[0]} columns over the {encoded.fov_mm[0]:g} mm that it "
            f"reconstructs as {recon.matrix[0]}: taken as pixels of half the size. If this is readout "
            "oversampling, encodedSpace.fieldOfView_mm.x has to be twice as large"
        )
    n_x, n_y = (max(2, round(recon.fov_mm[axis] / pixel)) for axis, pixel in ((0, pixel_x), (1, pixel_y)))
    return TrajectoryGrid((n_x, n_y), (n_x * pixel_x, n_y * pixel_y), tuple(notes))


def _alike(a: float, b: float) -> bool:
    return abs(a - b) <= 0.01 * abs(b)
