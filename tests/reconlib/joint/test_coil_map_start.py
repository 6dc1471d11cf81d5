"""Maps that are continued into the background, against a sparse solve."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch
from small_problem import small_problem

from reconlib.energies.coil_smoothness import CoilSmoothness
from reconlib.joint import coil_map_start
from reconlib.joint.coil_map_start import continued_maps

GRID = (14, 11)
SMOOTHNESS = CoilSmoothness(0.3)


def roughness(grid: tuple[int, int]) -> scipy.sparse.csr_array:
    """D^T D with zeros outside the image, pixels row by row."""
    second = [scipy.sparse.diags_array([2.0, -1.0, -1.0], offsets=[0, 1, -1], shape=(n, n)) for n in grid]
    unit = [scipy.sparse.eye_array(n) for n in grid]
    return scipy.sparse.kron(second[0], unit[1]) + scipy.sparse.kron(unit[0], second[1])


def maps_and_image(grid: tuple[int, int], generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Maps that are noise outside of an object, and its image; two slices of different brightness."""
    problem = small_problem(grid=grid, n_slices=2)
    inside = torch.zeros(grid, dtype=torch.bool)
    inside[grid[0] // 4 : 3 * grid[0] // 4, grid[1] // 4 : 3 * grid[1] // 4] = True
    noise = torch.randn(problem.coils.shape, dtype=torch.complex128, generator=generator)
    maps = torch.where(inside, problem.coils, noise / torch.linalg.vector_norm(noise, dim=1, keepdim=True))
    brightness = torch.tensor([1.0, 0.4], dtype=torch.float64)[:, None, None, None]
    return maps, problem.image * inside * brightness


@pytest.fixture
def start(generator) -> tuple[torch.Tensor, torch.Tensor]:
    return maps_and_image(GRID, generator)


@pytest.fixture
def larger_start(generator) -> tuple[torch.Tensor, torch.Tensor]:
    """A grid on which conjugate gradients without their preconditioner do not come far."""
    return maps_and_image((56, 48), generator)


def exact(maps: torch.Tensor, image: torch.Tensor) -> np.ndarray:
    """The minimiser of the module's text, with scipy."""
    found = np.empty(maps.shape, complex)
    for row, coil in np.ndindex(maps.shape[0], maps.shape[1]):
        weight = np.abs(image[row, 0].numpy().ravel()) ** 2
        system = scipy.sparse.csc_array(scipy.sparse.diags_array(weight) + 0.3 * roughness(image.shape[-2:]))
        right = weight * maps[row, coil].numpy().ravel()
        solve = scipy.sparse.linalg.factorized(system)
        found[row, coil] = (solve(right.real.copy()) + 1j * solve(right.imag.copy())).reshape(
            image.shape[-2:]
        )
    return found


def lifted(maps: np.ndarray) -> np.ndarray:
    return maps / np.minimum(np.linalg.norm(maps, axis=1, keepdims=True), 1.0)


def sum_of(maps: np.ndarray, start: np.ndarray, image: torch.Tensor) -> np.ndarray:
    """The function that is minimised, of each slice."""
    weight = np.abs(image.numpy()) ** 2
    near = 0.5 * np.sum(weight * np.abs(maps - start) ** 2, axis=(1, 2, 3))
    return near + SMOOTHNESS.value(torch.from_numpy(maps)).numpy()


def test_with_many_steps_the_maps_are_the_sparse_solution_lifted_to_unit_magnitude(start, monkeypatch):
    monkeypatch.setattr(coil_map_start, "STEPS", 80)
    maps, image = start
    found = continued_maps(maps, image, SMOOTHNESS)
    np.testing.assert_allclose(found.numpy(), lifted(exact(maps, image)), atol=1e-5)


def test_the_usual_steps_get_near_the_minimum(larger_start, monkeypatch):
    monkeypatch.setattr(coil_map_start, "at_least_unit", lambda maps: maps)
    maps, image = larger_start
    least = sum_of(exact(maps, image), maps.numpy(), image)
    before = sum_of(maps.numpy(), maps.numpy(), image)
    found = sum_of(continued_maps(maps, image, SMOOTHNESS).numpy(), maps.numpy(), image)
    assert bool((found < 1.02 * least).all())
    assert bool((before > 3 * least).all())


def test_the_noise_of_the_background_is_gone_and_the_object_keeps_its_maps(start):
    maps, image = start
    found = continued_maps(maps, image, SMOOTHNESS)
    is_bright = image.abs() > 0.5
    turned = (found.conj() * maps).sum(dim=1, keepdim=True).abs()
    alike = turned / torch.linalg.vector_norm(found, dim=1, keepdim=True)
    assert float(alike[is_bright].min()) > 0.98
    directions = found / torch.linalg.vector_norm(found, dim=1, keepdim=True)
    jumps = torch.diff(directions, dim=-1).abs().square().sum(dim=1)
    noisy_jumps = torch.diff(maps, dim=-1).abs().square().sum(dim=1)
    assert float(jumps.mean()) < 0.1 * float(noisy_jumps.mean())


def test_every_slice_of_a_batch_equals_the_slice_alone(start):
    maps, image = start
    both = continued_maps(maps, image, SMOOTHNESS)
    for row in range(2):
        alone = continued_maps(maps[row : row + 1], image[row : row + 1], SMOOTHNESS)
        torch.testing.assert_close(both[row], alone[0], rtol=1e-9, atol=1e-9)


def test_slices_of_zeros_and_of_nans_leave_their_neighbour_alone(start):
    maps, image = (torch.cat([one, one[:1]]).to(torch.complex64) for one in start)
    expected = continued_maps(maps, image, SMOOTHNESS)
    maps[1], image[1] = 0, 0
    image[2, 0, 5, 5] = torch.nan
    found = continued_maps(maps, image, SMOOTHNESS)
    torch.testing.assert_close(found[0], expected[0])
    assert not bool(found[1].any())
