"""Calls of deepspeed's other functions."""

from __future__ import annotations

from .call import ShapedCall, like
from .of_ops import STEP

__all__ = ["OTHERS"]

_FORMAT = {"group_size": 8, "q_mantisa_bits": 3, "q_exponent_bits": 4}
OTHERS = [
    ShapedCall("async_io.deepspeed_memcpy", like("dest src", "b c")),
    ShapedCall(
        "fused_adam.multi_tensor_adam",
        {"noop_flag": "int32 1", "tensor_lists": "4[[]] b c"},
        {
            "chunk_size": 1,
            "lr": 0.1,
            "beta1": 0.9,
            "beta2": 0.9,
            "epsilon": 1e-8,
            "step": 1,
            "mode": 1,
            "bias_correction": True,
            "weight_decay": 0.1,
        },
    ),
    ShapedCall(
        "cpu_adagrad.adagrad_update",
        like("param grad exp_avg_sq", "b c"),
        {"optimizer_id": 0, "step": 1, "lr": 0.1, "eps": 1e-8, "weight_decay": 0.1},
    ),
    ShapedCall(
        "cpu_lion.lion_update",
        like("param grad exp_avg", "b c"),
        {"optimizer_id": 0, "step": 1, **STEP, "weight_decay": 0.1},
    ),
    ShapedCall("fp_quantizer.dequantize", {"val": "g 8", "val_q": "uint8 g 12"}, _FORMAT),
    ShapedCall(
        "fp_quantizer.quantize",
        {"val": "g 8", "out": "uint8 g 12"},
        {"group_size": 8, "stochastic_rounding": False, "q_bits": 8, "q_mantisa_bits": 3},
    ),
    ShapedCall(
        "fp_quantizer.selective_dequantize", {"val": "b 8", "val_q": "uint8 g 12", "indexes": "int32 b"}, _FORMAT
    ),
    ShapedCall(
        "fused_lamb.lamb",
        like("param param_copy exp_avg exp_avg_sq grad", "b c"),
        {
            **STEP,
            "max_coeff": 10.0,
            "min_coeff": 0.01,
            "eps": 1e-8,
            "grad_scale": 1.0,
            "step": 1,
            "mode": 0,
            "bias_correction": True,
            "weight_decay": 0.1,
        },
    ),
    ShapedCall(
        "fused_lion.multi_tensor_lion",
        {"noop_flag": "int32 1", "tensor_lists": "3[[]] b c"},
        {"chunk_size": 1, **STEP, "step": 1, "weight_decay": 0.1},
    ),
    ShapedCall(
        "quantizer.dequantize",
        {"quantized_data": "int8 n 8", "params": "4 1"},
        {"groups": 4, "num_bits": 8, "quant_type": 0},
    ),
    ShapedCall(
        "quantizer.dequantize_fp32",
        {"quantized_data": "int8 n 8", "params": "4 1"},
        {"groups": 4, "num_bits": 8, "quant_type": 0},
    ),
    ShapedCall(
        "quantizer.dequantize_int4_to_half_experimental",
        {"data_in": "uint8 g 8", "scale_buffer": "float16 g", "min_val_buffer": "float16 g"},
        {"num_group": 4, "group_size": 16},
    ),
    ShapedCall(
        "quantizer.dequantize_int8_to_half_experimental",
        {"data_in": "uint8 g 8", "scale_buffer": "float16 g", "min_val_buffer": "float16 g"},
        {"num_group": 4, "group_size": 8},
    ),
    ShapedCall(
        "quantizer.quantized_reduction",
        {"input_vals": "int8 n 8", "input_scales": "4 1"},
        {"in_groups": 4, "out_groups": 2, "num_bits": 8, "quant_type": 0, "devices_per_node": 2},
    ),
    ShapedCall("random_ltd.mask_gather_bert", {"dense_mask": "b 1 t t", "sorted_indices": "int32 e b k"}),
    ShapedCall(
        "random_ltd.token_gather", {"activations": "b t c", "sorted_indices": "int32 b k"}, {"batch_first": True}
    ),
    ShapedCall(
        "random_ltd.token_scatter_",
        {"all_activations": "b t c", "layer_activations": "b k c", "sorted_indices": "int32 b k"},
        {"batch_first": True},
    ),
    ShapedCall("spatial_inference.nhwc_bias_add", {"activation": "b c t u", "bias": "c"}),
    ShapedCall("spatial_inference.nhwc_bias_add_add", {**like("activation other", "b c t u"), "bias": "c"}),
    ShapedCall(
        "spatial_inference.nhwc_bias_add_bias_add",
        {**like("activation other", "b c t u"), **like("bias other_bias", "c")},
    ),
    ShapedCall(
        "utils.unflatten",
        {"flat": "16+", "tensors": "[] 2 8"},
        accepts={"tensors": "0 of 1, 1 of 1, 1 smaller, fewer"},
    ),
]
