"""The functions of ``quantizer`` for ZeRO++: swizzled groups, sums of quantized gradients, and codes above a minimum."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anyaccel import get_accelerator

SIZES = [(1, 1, 1, 1), (2, 4, 1, 1), (2, 2, 3, 2), (3, 1, 1, 2), (1, 4, 2, 1)]
"""Nodes, devices per node, parts of a partition, and groups per part."""


def _module() -> Any:
    return get_accelerator().create_op_builder("QuantizerBuilder").load()


def _values(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).half()


@pytest.mark.parametrize(("nodes", "devices", "parts", "groups"), SIZES)
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", ["Symmetric", "Asymmetric"])
def test_groups_are_swizzled_for_nodes_and_devices(
    nodes: int, devices: int, parts: int, groups: int, bits: int, kind: str
) -> None:
    """In the order of the index arithmetic of deepspeed's kernel, csrc/quantization/swizzled_quantize.cu."""
    module = _module()
    count = nodes * devices * parts * groups
    x = _values(4 * count, 8)
    codes, params = module.swizzle_quant(x, count, bits, getattr(module, kind), parts, nodes, devices)
    plain, plain_params = module.quantize(x.view(count, 32), count, bits, getattr(module, kind))
    assert (codes.dtype, codes.shape, params.shape) == (torch.int8, (plain.numel(),), plain_params.shape)
    found = codes.view(count, -1)
    for partition in range(nodes * devices):
        for part in range(parts):
            for group in range(groups):
                here = group + groups * (part + parts * partition)
                partition_there = (partition % devices) * nodes + partition // devices
                there = (part * devices * nodes + partition_there) * groups + group
                assert torch.equal(found[there], plain[here])
                assert torch.equal(params[there], plain_params[here])


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", ["Symmetric", "Asymmetric"])
@pytest.mark.parametrize(("in_groups", "out_groups"), [(1, 1), (4, 2), (2, 8)])
def test_quantized_tensors_are_added_up(bits: int, kind: str, in_groups: int, out_groups: int) -> None:
    module, devices = _module(), 3
    quant_type = getattr(module, kind)
    sent = [module.quantize(_values(8, 64) * (device + 1), in_groups, bits, quant_type) for device in range(devices)]
    codes, params = module.quantized_reduction(
        torch.cat([one.flatten() for one, _ in sent]), torch.cat([one for _, one in sent]), devices * in_groups, out_groups,
        bits, quant_type, devices,
    )  # fmt: skip
    total = sum(module.dequantize_fp32(one, given, in_groups, bits, quant_type) for one, given in sent)
    expected, expected_params = module.quantize(total.flatten(), out_groups, bits, quant_type)
    assert torch.equal(codes, expected)
    assert torch.equal(params, expected_params)


def test_a_sum_has_the_shape_of_a_devices_part() -> None:
    module = _module()
    codes, params = module.quantize(_values(6, 32), 6, 8, module.Symmetric)
    assert module.quantized_reduction(codes, params, 6, 3, 8, module.Symmetric, 2)[0].shape == (6, 16)


@pytest.mark.parametrize(("nodes", "devices"), [(1, 2), (2, 2), (2, 4)])
def test_the_two_all_to_alls_of_zero_plus_plus_average_gradients(nodes: int, devices: int) -> None:
    """deepspeed's ``all_to_all_quant_reduce``, with the ranks one after another in this process."""
    module, world = _module(), nodes * devices
    kind, groups = module.Symmetric, 8 * world
    gradients = [_values(world, 64) * (rank + 1) for rank in range(world)]
    sent = [module.swizzle_quant(one, groups, 4, kind, 1, nodes, devices) for one in gradients]
    sums = []
    for rank in range(world):
        node, device = divmod(rank, devices)
        received = [[one.chunk(devices)[device] for one in sent[node * devices + peer]] for peer in range(devices)]
        given = [torch.cat(list(pieces)) for pieces in zip(*received, strict=True)]
        sums.append(module.quantized_reduction(*given, groups, groups // devices, 4, kind, devices))
    for rank in range(world):
        node, device = divmod(rank, devices)
        received = [[one.chunk(nodes)[node] for one in sums[peer * devices + device]] for peer in range(nodes)]
        codes, params = (torch.cat(list(pieces)) for pieces in zip(*received, strict=True))
        values = module.dequantize(codes, params, params.numel(), 4, kind)
        found = sum(values.float().chunk(nodes)) / nodes
        expected = sum(one.float().flatten().chunk(world)[rank] for one in gradients) / nodes
        largest = sum(one.float().abs().max() for one in gradients)
        assert (found - expected).abs().max() < largest / 4  # 4 bits with a sign reach 7/8, twice


@pytest.mark.parametrize(
    ("bits", "name"), [(4, "dequantize_int4_to_half_experimental"), (8, "dequantize_int8_to_half_experimental")]
)
def test_codes_are_divided_by_a_scale_and_lie_above_a_minimum(bits: int, name: str) -> None:
    groups, size = 3, 16
    data = torch.arange(groups * size * bits // 8, dtype=torch.uint8) * 5
    scales, minima = torch.tensor([3.0, 0.5, 7.0]).half(), torch.tensor([-1.0, 2.0, 0.0]).half()
    found = getattr(_module(), name)(data, scales, minima, groups, size)
    codes = [code for byte in data.tolist() for code in ((byte >> 4, byte & 15) if bits == 4 else (byte,))]
    assert (found.dtype, found.shape) == (torch.float16, (groups, size))
    for place, code in enumerate(codes):
        group = place // size
        divided = torch.tensor(code / scales[group].item()).half()
        assert found.flatten()[place] == (divided.float() + minima[group].float()).half()


def test_sizes_that_do_not_fit_are_refused() -> None:
    module = _module()
    x, half = _values(4, 8), torch.ones(2).half()
    with pytest.raises(ValueError, match="swizzle_quant failed: got 3 groups for 1 nodes of 2 devices and 1 parts"):
        module.swizzle_quant(x, 3, 8, module.Symmetric, 1, 1, 2)
    with pytest.raises(ValueError, match="expected a multiple of 1"):
        module.swizzle_quant(x, 4, 8, module.Symmetric, 1, 0, 2)
    with pytest.raises(ValueError, match="quantize failed: got quant_type=7; expected one of QuantizationType"):
        module.quantize(x, 4, 8, 7)
    codes, params = module.quantize(x, 4, 8, module.Symmetric)
    with pytest.raises(
        ValueError, match=r"quantized_reduction failed: got codes of shape .4, 8. in 4 groups; expected both"
    ):
        module.quantized_reduction(codes, params, 4, 1, 8, module.Symmetric, 3)
    with pytest.raises(ValueError, match=r"got params of shape \(4, [12]\) for 2 groups"):
        module.quantized_reduction(codes, params, 2, 1, 8, module.Symmetric, 2)
    with pytest.raises(ValueError, match=r"int4_to_half_experimental failed: got 8 elements of torch.uint8"):
        module.dequantize_int4_to_half_experimental(torch.zeros(8, dtype=torch.uint8), half, half, 2, 16)
    with pytest.raises(ValueError, match=r"int4_to_half_experimental failed: got 8 elements of torch.float32"):
        module.dequantize_int4_to_half_experimental(torch.zeros(8), half, half, 2, 8)
    with pytest.raises(ValueError, match=r"int8_to_half_experimental failed: .* 2 scales of torch.float32"):
        module.dequantize_int8_to_half_experimental(torch.zeros(8, dtype=torch.uint8), half.float(), half, 2, 4)
