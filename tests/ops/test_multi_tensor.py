"""The op `multi_tensor` against plain torch in float64, on every implementation available here."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .compare import DTYPES, close, normal, opcheck
from .conftest import KINDS, load

BUILDER = "MultiTensorBuilder"
SHAPES = [(1,), (7, 5), (0,), (100_003,), (3, 1, 65), *[(11,)] * 300]


def _tensors(op: Any, dtype: torch.dtype, seed: int = 0) -> list[torch.Tensor]:
    return [normal(*shape, dtype=dtype, device=op.device, seed=seed) for shape in SHAPES]


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", DTYPES)
def test_norms_agree(op: Any, dtype: torch.dtype) -> None:
    tensors = _tensors(op, dtype)
    total, norms = op.functions.l2norm(tensors)
    exact = torch.stack([tensor.double().norm() for tensor in tensors])
    torch.testing.assert_close(norms.double(), exact, rtol=1e-5, atol=1e-6)
    assert total.item() == pytest.approx(exact.norm().item(), rel=1e-5)


@pytest.mark.parametrize("mixed", [False, True])
def test_norms_of_mixed_dtypes_and_layouts(op: Any, mixed: bool) -> None:
    tensors = [normal(6, 4, dtype=dtype, device=op.device) for dtype in (DTYPES if mixed else DTYPES[:1])]
    views = [view for tensor in tensors for view in (tensor, tensor.t(), tensor[:, ::2], tensor[:1].expand(3, 4))]
    _, norms = op.functions.l2norm(views)
    torch.testing.assert_close(norms.double(), torch.stack([v.double().norm() for v in views]), rtol=1e-5, atol=0)


def test_what_is_not_finite_reaches_the_norm(op: Any) -> None:
    tensors = _tensors(op, torch.float32)
    tensors[3][5] = torch.nan
    total, norms = op.functions.l2norm(tensors)
    assert total.isnan().all()
    assert norms[3].isnan()
    assert norms[0].isfinite()


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("out", DTYPES)
@pytest.mark.parametrize("on_device", [False, True])
def test_scaling_agrees(op: Any, dtype: torch.dtype, out: torch.dtype, on_device: bool) -> None:
    tensors = _tensors(op, dtype)
    outputs = [torch.empty_like(tensor, dtype=out) for tensor in tensors]
    flag = torch.zeros(1, dtype=torch.int32, device=op.device)
    factor = torch.tensor([0.3], device=op.device) if on_device else 0.3
    op.functions.scale(tensors, outputs, factor, flag)
    assert flag.item() == 0
    for mine, given in zip(outputs, tensors, strict=True):
        close(mine, given.double() * 0.3)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("out", DTYPES)
def test_few_tensors_are_served_as_many_are(op: Any, dtype: torch.dtype, out: torch.dtype) -> None:
    for sizes in ([1], [70, 0, 131], [33]):
        x, y = ([normal(size, dtype=dtype, device=op.device, seed=seed) for size in sizes] for seed in range(2))
        outputs = [torch.empty_like(tensor, dtype=out) for tensor in x]
        op.functions.scale(x, outputs, 0.3)
        for mine, given in zip(outputs, x, strict=True):
            close(mine, given.double() * 0.3)
        sums = [torch.empty_like(tensor) for tensor in x]
        op.functions.axpby(x, y, sums, 0.5, -2.0)
        for mine, left, right in zip(sums, x, y, strict=True):
            close(mine, 0.5 * left.double() - 2 * right.double())
        total, each = op.functions.l2norm(x)
        close(total.view(()), torch.cat(x).double().norm())
        close(each, torch.stack([tensor.double().norm() for tensor in x]))


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("past", [0, 1])
def test_chunks_agree_whatever_is_left_and_wherever_they_begin(op: Any, dtype: torch.dtype, past: int) -> None:
    """A device processes tensors in chunks of 4096, in tiles if all of a tensor's addresses are aligned."""
    sizes = [4095, 0, 4096, 1, 4097, 2 * 4096 + 5]
    x, y = (
        [normal(size + past, dtype=dtype, device=op.device, seed=seed)[past:] for size in sizes] for seed in range(2)
    )
    total, each = op.functions.l2norm(x)
    close(each, torch.stack([tensor.double().norm() for tensor in x]))
    close(total.view(()), torch.cat(x).double().norm())
    flag = torch.zeros(1, dtype=torch.int32, device=op.device)
    outputs = [torch.empty_like(tensor, dtype=torch.float32) for tensor in x]  # aligned even if x is not
    op.functions.scale(x, outputs, 0.3, flag)
    for mine, given in zip(outputs, x, strict=True):
        close(mine, given.double() * 0.3)
    sums = [torch.empty_like(tensor) for tensor in x]
    op.functions.axpby(x, y, sums, 0.5, -2.0, flag)
    for mine, left, right in zip(sums, x, y, strict=True):
        close(mine, 0.5 * left.double() - 2 * right.double())
    assert flag.item() == 0
    x[5][-1] = torch.nan  # in the last chunk, whose size is not a multiple of a tile's
    op.functions.scale(x, outputs, 0.3, flag)
    assert flag.item() == 1


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("cpu", "emulated")])
def test_a_tensors_norm_does_not_depend_on_the_others(kind: str) -> None:
    """Not even its last bit; the CPU divides tensors among threads, and the emulator varies their number."""
    op = load(kind, BUILDER)
    tensors = [normal(size, dtype=torch.float32, device=op.device) for size in (50_000, 70, 0, 200_001)]
    alone = torch.cat([op.functions.l2norm([tensor])[1] for tensor in tensors])
    assert torch.equal(op.functions.l2norm(tensors)[1], alone)


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("place", [(0, 0), (3, 100_002), (304, 10)])
def test_an_overflow_sets_the_flag(op: Any, value: float, place: tuple[int, int]) -> None:
    tensors = _tensors(op, torch.float32)
    tensors[place[0]][place[1]] = value
    flag = torch.zeros(1, dtype=torch.int32, device=op.device)
    op.functions.scale(tensors, tensors, 0.5, flag)
    assert flag.item() == 1
    flag.zero_()
    others = _tensors(op, torch.float32, seed=1)
    op.functions.axpby(tensors, others, others, 1.0, 1.0, flag)
    assert flag.item() == 1


def test_several_groups_may_set_the_flag_at_once(op: Any) -> None:
    infinite = [torch.full((40_000,), torch.inf, device=op.device)]
    flag = torch.zeros(1, dtype=torch.int32, device=op.device)
    op.functions.scale(infinite, infinite, 0.5, flag)
    assert flag.item() == 1
    flag.zero_()
    op.functions.axpby(infinite, infinite, infinite, 1.0, 1.0, flag)
    assert flag.item() == 1


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_agree(op: Any, dtype: torch.dtype) -> None:
    x, y = _tensors(op, dtype), _tensors(op, dtype, seed=1)
    outputs = [torch.empty_like(tensor) for tensor in x]
    op.functions.axpby(x, y, outputs, 0.3, -2.0)
    for mine, left, right in zip(outputs, x, y, strict=True):
        close(mine, 0.3 * left.double() - 2 * right.double())


def test_in_place_is_told_to_autograd(op: Any) -> None:
    x = torch.ones(3, device=op.device, requires_grad=True) * 1
    product = x * x
    with torch.no_grad():
        op.functions.scale([x], [x], 2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda f, x: f.scale([x], [x, x], 1.0), "got outputs with 2 tensors; expected 1, as inputs has"),
        (lambda f, x: f.scale([x], [x.long()], 1.0), r"got outputs\[0\] of int64"),
        (lambda f, x: f.scale([x], [x[:1].expand(3)], 1.0), r"got outputs\[0\], whose elements share memory"),
        (lambda f, x: f.scale([x], [x], x.double()[:1]), "got factor of float64"),
        (
            lambda f, x: f.scale([x], [x], 1.0, torch.zeros(1, device=x.device)),
            "got noop_flag of float32; expected int32",
        ),
        (lambda f, x: f.axpby([x], [x.half()], [x], 1, 1), "got y of float16; expected float32"),
        (lambda f, x: f.axpby([x], [x[:2]], [x], 1, 1), r"got y\[0\] of shape \(2\); expected \(3\)"),
        (lambda f, x: f.l2norm([x.int()]), r"got tensors\[0\] of int32"),
        (lambda f, x: f.l2norm([]), "got no tensors"),
    ],
)
def test_wrong_arguments_are_named(op: Any, call: Any, said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        call(op.functions, torch.ones(3, device=op.device))


def test_opcheck(op: Any) -> None:
    space = op.space
    x, flag = torch.rand(3, device=op.device), torch.zeros(1, dtype=torch.int32, device=op.device)
    opcheck(space.multi_tensor_l2norm.default, ([x, x.half()],))
    opcheck(space.multi_tensor_scale.default, ([x], [x.clone()], 2.0, None, flag))
    opcheck(space.multi_tensor_axpby.default, ([x], [x.clone()], [x.clone()], 2.0, 3.0, None))


def test_a_factor_without_elements_is_refused(op: Any) -> None:
    x = torch.ones(3, device=op.device)
    for count in (0, 2):
        with pytest.raises(RuntimeError, match=rf"got factor of shape \({count}\); expected one number"):
            op.functions.scale([x], [x], torch.ones(count, device=op.device))
    assert (x == 1).all()


def test_a_leaf_of_another_layout_is_written_whole(op: Any) -> None:
    space = op.space
    plain, leaf = torch.ones(2, 3, device=op.device), torch.ones(3, 2, device=op.device, requires_grad=True)
    space.multi_tensor_scale([plain, plain], [plain.clone(), leaf.t()], 2.0, None, None)
    assert (leaf == 2).all()
