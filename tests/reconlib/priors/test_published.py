"""A checkpoint with the published names and shapes becomes a prior that means the same."""

import pickle
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from reconlib.joint.prior_weight import prior_weight
from reconlib.priors.library import Prior, PriorError, load_prior, read_card
from reconlib.priors.published import import_published, published_weights, read_checkpoint
from reconlib.priors.verification import check_package

WIDTHS = [48, 48, 144, 240, 432, 768, 1344]
SHAPES = [(48, 1, 3, 3), (48, 48, 3, 3)]
for _stage in range(1, 6):
    SHAPES += [
        (WIDTHS[_stage], WIDTHS[_stage], 3, 3),
        (WIDTHS[_stage + 1], WIDTHS[_stage], 3, 3),
    ]
SHAPES.append((1, 1344, 5, 5))


def state_dict() -> dict[str, torch.Tensor]:
    """Weights of the usual size, and the masks."""
    generator = torch.Generator().manual_seed(7)
    state: dict[str, torch.Tensor] = OrderedDict()
    for i, shape in enumerate(SHAPES):
        fan_in = shape[1] * shape[2] * shape[3]
        state[f"convs.{i}.weight"] = (2 / fan_in) ** 0.5 * torch.randn(shape, generator=generator)
        state[f"convs.{i}.mask"] = torch.ones(shape[2:])
    return state


def light_state_dict() -> dict[str, torch.Tensor]:
    """The same names and shapes, one stored number each."""
    return {f"convs.{i}.weight": torch.tensor(0.5 + i).expand(shape) for i, shape in enumerate(SHAPES)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("published")
    masks = {f"convs.{i}.mask": torch.ones(3, 3) for i in range(13)}
    torch.save(light_state_dict() | masks, place / "checkpoint.pth")
    import_published(place / "checkpoint.pth", place / "knee")
    return place / "knee"


@pytest.fixture(scope="module")
def prior(folder) -> Prior:
    return load_prior(folder, torch.device("cpu"))


def straightforward(weights: dict[str, torch.Tensor], image: torch.Tensor) -> torch.Tensor:
    """The paper's energy of the image turned by 180 degrees, layer by layer."""
    x = torch.flip(image, dims=(-2, -1))
    for i in range(12):
        x = functional.conv2d(x, weights[f"convs.{i}.weight"].double(), stride=1 + i % 2, padding=1)
        x = torch.where(x > 0, x, 0.05 * x)
    return (x * weights["convs.12.weight"].double()).sum(dim=(1, 2, 3)).abs()


@pytest.mark.slow
def test_energy_and_gradient_equal_a_straightforward_evaluation(tmp_path, generator):
    """In float64: in float32 a rectifier's input near zero may have the other sign."""
    weights = state_dict()
    torch.save({"state_dict": weights, "epoch": 1}, tmp_path / "checkpoint.pth")
    import_published(tmp_path / "checkpoint.pth", tmp_path / "knee")
    assert check_package(tmp_path / "knee").faults == ()
    prior = load_prior(tmp_path / "knee", torch.device("cpu"))
    assert prior.network is not None
    image = torch.rand(1, 1, 320, 320, generator=generator)
    point = image.double().requires_grad_(True)
    expected = straightforward(weights, point)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), point)

    single = prior.energy.value(image)
    prior.network.double()
    value, gradient = prior.energy.value_and_gradient(image.double())

    torch.testing.assert_close(single.double(), expected.detach(), rtol=1e-4, atol=0)
    torch.testing.assert_close(value, expected.detach(), rtol=1e-10, atol=0)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-8, atol=1e-12)


def test_the_weights_are_the_published_ones_and_the_masks_are_left_out(prior):
    assert prior.network is not None
    found = prior.network.state_dict()
    assert list(found) == [f"convs.{i}.weight" for i in range(13)]
    assert all(torch.equal(found[name], value) for name, value in light_state_dict().items())
    assert sum(value.numel() for value in found.values()) == 21_350_640


def test_the_card_says_how_the_weights_are_used(prior):
    """Numbers from the paper: epsilon 7.5e-3, T = epsilon^2 / 2, and the table of data weights."""
    card = prior.card
    assert card.temperature == prior.energy.temperature == pytest.approx(2.8125e-5, rel=1e-12)
    assert card.gradient_noise_std == 7.5e-3
    assert card.image_phase == "real"
    assert card.input.matrix == (320, 320)
    assert (card.input.transpose, card.input.rotation_degrees) == (False, 180)
    assert card.input.scaling == "maximum"
    published = card.prior_weight.published
    assert published is not None
    assert (published.contrast, published.smallest) == ("CORPD", 0.01)
    assert (published.intercept, published.slope) == (0.547736, -2.71084e8)
    assert published.coil_smoothness_slope == 3e9


def test_the_weight_follows_from_the_noise(prior):
    """By sigma^2 / T: at 1 % noise 1e-4 / 2.8125e-5."""
    weight, rule = prior_weight(prior.card, 0.01, rule=None, value=None, factor=1.0)
    assert rule == "noise"
    assert weight == pytest.approx(3.5556, rel=1e-4)


def test_the_other_contrast_and_the_order_of_streams_are_choices(tmp_path):
    torch.save(light_state_dict(), tmp_path / "light.pth")
    card = import_published(
        tmp_path / "light.pth", tmp_path / "fs", name="knee-fs", contrast="CORPD-FS", array_order="stream"
    )
    assert card.name == "knee-fs"
    assert card.prior_weight.published is not None
    assert card.prior_weight.published.intercept == 0.07383
    assert card.prior_weight.published.slope == -3.57541e7
    assert (card.input.transpose, card.input.rotation_degrees) == (True, 180)
    assert read_card(tmp_path / "fs") == card


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {f"module.{name}": value for name, value in state.items()},
        lambda state: {"state_dict": state, "epoch": 3, "loss": [0.1, 0.2]},
        lambda state: {"model": {f"module.net.{name}": value for name, value in state.items()}, "optim": {}},
        lambda state: {"a": {"b": {"c": state}}},
        lambda state: state | {f"convs.{i}.mask": torch.ones(3, 3) for i in range(13)},
    ],
    ids=["plain", "module", "state_dict", "model and module", "deep", "masks"],
)
def test_the_state_dict_is_found_wherever_it_lies(wrap):
    state = light_state_dict()
    found = published_weights(wrap(state), "it")
    assert list(found) == list(state)


def test_half_and_double_precision_become_single():
    mixed = light_state_dict()
    mixed["convs.0.weight"] = mixed["convs.0.weight"].double()
    mixed["convs.1.weight"] = mixed["convs.1.weight"].half()
    found = published_weights(mixed, "it")
    assert {value.dtype for value in found.values()} == {torch.float32}
    assert float(found["convs.0.weight"][0, 0, 0, 0]) == 0.5


def test_two_state_dicts_need_a_choice():
    checkpoint = {"model": light_state_dict(), "ema": light_state_dict()}
    with pytest.raises(PriorError, match=r"it holds 2 \('model', 'ema'\); choose one by its key"):
        published_weights(checkpoint, "it")
    assert len(published_weights(checkpoint, "it", "ema")) == 13
    with pytest.raises(PriorError, match="under the key 'emo', it holds 0"):
        published_weights(checkpoint, "it", "emo")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"convs.3.weight": torch.zeros(144, 144, 3, 3)},
         r"convs\.3\.weight: found \(144, 144, 3, 3\), needed \(144, 48, 3, 3\)"),
        ({"convs.13.weight": torch.zeros(1)}, r"convs\.13\.weight: found \(1,\), needed none"),
        ({"convs.0.bias": torch.zeros(48)}, r"convs\.0\.bias: found \(48,\), needed none"),
        ({"convs.12.weight": None}, r"convs\.12\.weight: found NoneType, needed \(1, 1344, 5, 5\)"),
        ({"convs.12.weight": torch.full((1, 1344, 5, 5), torch.nan)}, r"infinities or NaNs, in convs\.12"),
    ],
    ids=["shape", "more", "bias", "no tensor", "NaN"],
)  # fmt: skip
def test_another_network_is_refused_with_what_differs(change, fault):
    with pytest.raises(PriorError, match=fault):
        published_weights(light_state_dict() | change, "it")


def test_missing_weights_are_named():
    state = light_state_dict()
    del state["convs.5.weight"]
    with pytest.raises(PriorError, match=r"convs\.5\.weight: found none, needed \(240, 144, 3, 3\)"):
        published_weights(state, "it")


@pytest.mark.parametrize(
    ("checkpoint", "fault"),
    [
        ({"layer.weight": torch.zeros(3)}, "it holds 0 .none.; at the top are 'layer.weight'"),
        (torch.zeros(3), "at the top are not names, but a Tensor"),
        ({}, "at the top are no names"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(checkpoint, fault):
    with pytest.raises(PriorError, match=fault):
        published_weights(checkpoint, "it")


class _Bomb:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


def test_code_in_a_checkpoint_is_refused_and_not_executed(tmp_path):
    torch.save({"state_dict": light_state_dict(), "hook": _Bomb(tmp_path / "run")}, tmp_path / "evil.pth")
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(_Bomb(tmp_path / "run")))
    for name in ("evil.pth", "plain.pkl"):
        with pytest.raises(PriorError, match="is no torch checkpoint of tensors alone"):
            read_checkpoint(tmp_path / name)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("blob", [b"", b"PK\x03\x04 cut", b"\x80\x02.", b"text" * 100])
def test_bytes_of_something_else_are_refused(tmp_path, blob):
    (tmp_path / "file.pth").write_bytes(blob)
    with pytest.raises(PriorError, match="is no torch checkpoint of tensors alone"):
        read_checkpoint(tmp_path / "file.pth")


def test_a_folder_that_exists_is_not_touched(folder, tmp_path):
    torch.save(light_state_dict(), tmp_path / "light.pth")
    before = (folder / "card.yaml").read_bytes()
    with pytest.raises(FileExistsError, match="exists"):
        import_published(tmp_path / "light.pth", folder)
    assert (folder / "card.yaml").read_bytes() == before
