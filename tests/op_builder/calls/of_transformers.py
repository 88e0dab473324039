"""Calls of deepspeed's functions for transformers."""

from __future__ import annotations

from .call import ShapedCall, like

__all__ = ["CORE", "EPS", "TRANSFORMER"]

EPS = {"epsilon": 1e-5}
_WEIGHTS = {"q_int8": False, "transposed_mode": False}
_SCALE = {"q_scale": "any 1"}
TRANSFORMER = [
    ShapedCall("_vector_add", like("a b", "b t c"), {"gamma": 2.0}),
    ShapedCall("add_padding", {"query": "b h n c", **like("key value", "b h t c")}),
    ShapedCall(
        "apply_rotary_pos_emb",
        like("mixed_query key_layer", "b t c"),
        {"rotary_dim": 2, "offset": 0, "num_heads": 4, "rotate_half": True, "rope_theta": 10000.0},
        accepts={"mixed_query": "1 of 1, 1 smaller", "key_layer": "1 larger"},
    ),
    ShapedCall("bias_add", {"x": "b t c", "bias": "c"}),
    ShapedCall("bias_gelu", {"x": "b t c", "bias": "c"}),
    ShapedCall("bias_relu", {"x": "b t c", "bias": "c"}),
    *(
        ShapedCall(name, {"weight": "int8 n 8", "qscale": "4+"}, {"groups": 4}, accepts={"qscale": "more"})
        for name in ("dequantize_fp32", "dequantize_fp16", "dequantize_bf16")
    ),
    ShapedCall("einsum_sec_sm_ecm", {"dispatch": "t e p", "tokens": "t c"}),
    ShapedCall(
        "fused_gemm_gelu",
        {
            "x": "b t c",
            "weight": "c o",
            "weight_scale": "any 1",
            "bias": "o",
            "weight_out": "o d",
            "weight_out_scale": "any 1",
        },
        _WEIGHTS,
    ),
    ShapedCall(
        "fused_gemm_gelu",
        {
            "x": "b t c",
            "weight": "int8 o c",
            "weight_scale": "12",
            "bias": "o",
            "weight_out": "int8 8 o",
            "weight_out_scale": "8",
        },
        {"q_int8": True, "transposed_mode": False},
        case="int8",
        accepts=like("weight_scale weight_out_scale", "0 of 1, fewer"),
    ),
    ShapedCall("gated_activation", {"activation": "b t c", "bias": "c"}, {"act_type": 4}),
    ShapedCall("layer_norm", {"x": "b t c", "gamma": "c", "beta": "c"}, EPS),
    ShapedCall(
        "layer_norm_residual_store_pre_ln_res", {**like("x residual", "b t c"), **like("bias gamma beta", "c")}, EPS
    ),
    ShapedCall(
        "linear_layer",
        {"x": "b t c", "weight": "c o", "bias": "o"},
        {"add_bias": True, "do_flash_attn": False, "num_heads": 2, "transposed_mode": False, "rope_theta": 0.0},
    ),
    ShapedCall(
        "linear_layer",
        {"x": "b t c", "weight": "3c c", "bias": "3c"},
        {"add_bias": True, "do_flash_attn": True, "num_heads": 2, "transposed_mode": True, "rope_theta": 0.0},
        case="for attention",
    ),
    ShapedCall(
        "mlp_gemm",
        {
            **like("x residual", "b t c"),
            **like("input_bias gamma beta", "c"),
            "weight_interm": "c o",
            "weight_out": "o d",
            "bias": "o",
            **like("q_scale q_scale1", "any 1"),
        },
        {**EPS, "pre_layer_norm": True, "mlp_after_attn": True, "activation_type": 1, **_WEIGHTS},
    ),
    ShapedCall("moe_res_matmul", {**like("moe_res output", "b t c"), "coef": "2c"}),
    ShapedCall("pad_transform", {"query": "b n c", **like("key value", "b t c")}, {"heads": 2, "add_padding": False}),
    ShapedCall("pre_rms_norm", {**like("x residual", "b t c"), "gamma": "c"}, EPS),
    ShapedCall(
        "qkv_gemm",
        {"x": "b t c", "weight": "c o", "bias": "o", **like("gamma beta", "c"), **_SCALE},
        {**EPS, "add_bias": True, **_WEIGHTS},
    ),
    ShapedCall(
        "residual_add_bias",
        {**like("hidden_state residual attention_output", "b t c"), **like("attention_bias final_bias", "c")},
        {"mp_size": 1, "mlp_after_attn": True, "add_bias": True, "preln": True},
    ),
    ShapedCall(
        "rms_mlp_gemm",
        {
            **like("x residual", "b t c"),
            "gamma": "c",
            "weight_interm": "c 2o",
            "weight_out": "o d",
            **like("q_scale q_scale1", "any 1"),
        },
        {**EPS, "activation_type": 4, **_WEIGHTS},
    ),
    ShapedCall("rms_norm", {"x": "b t c", "gamma": "c"}, EPS),
    ShapedCall("rms_qkv_gemm", {"x": "b t c", "weight": "c o", "gamma": "c", **_SCALE}, {**EPS, **_WEIGHTS}),
    ShapedCall(
        "softmax",
        {"attn_scores": "b 4 t u", "attn_mask": "b 1 1 u", "alibi": "8+ 1+ u"},
        {
            "triangular": True,
            "recompute": False,
            "local_attention": False,
            "window_size": 1,
            "async_op": False,
            "layer_scale": 1.0,
            "head_offset": 0,
            "mp_size": 1,
        },
        accepts={"attn_scores": "1 of 1, 1 smaller", "attn_mask": "0 of 1", "alibi": "more"},
    ),
    ShapedCall("vector_matmul", {"x": "b t c", "weight": "c o", **_SCALE}, {"async_op": False, **_WEIGHTS}),
]

_NORM = {"eps": 1e-5}
CORE = [
    ShapedCall("bias_activation", {"activation": "t c", "bias": "c"}, {"act_type": 0}),
    ShapedCall("bias_activation", {"activation": "t c", "bias": "c"}, {"act_type": 1}, case="ReLU"),
    ShapedCall("blas_4d_matmul", {"c": "b h t u", "b": "b h c u", "a": "b h t c"}),
    ShapedCall("blas_linear", {"output": "t o", "hidden_states": "t c", "weights": "o c"}),
    ShapedCall("gated_activation", {"output": "t c", "activation": "t 2c", "bias": "2c"}, {"act_type": 4}),
    ShapedCall("layer_norm", {**like("output norm_input", "t c"), **like("gamma beta", "c")}, _NORM),
    ShapedCall("post_layer_norm", {**like("output norm_input residual", "t c"), **like("gamma beta", "c")}, _NORM),
    ShapedCall(
        "pre_layer_norm",
        {**like("res_output norm_output norm_input residual", "t c"), **like("gamma beta", "c")},
        _NORM,
    ),
    ShapedCall("rms_norm", {**like("norm_output norm_input", "t c"), "gamma": "c"}, _NORM),
    ShapedCall(
        "rms_pre_norm", {**like("norm_output residual_output norm_input residual_input", "t c"), "gamma": "c"}, _NORM
    ),
]
