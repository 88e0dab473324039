"""Calls of Colossal-AI's functions."""

from __future__ import annotations

from .call import ShapedCall, like
from .of_ops import MASKS
from .of_transformers import EPS

__all__ = ["COLOSSAL"]

_MOE = {"mask": "int32 k 6", "dest_idx": "int32 k 6"}
_PLACES = {"mask": [[1] * 6] * 2, "dest_idx": [list(range(6)), list(range(6, 12))]}
_SIZES_OF_MOE = {"s": 6, "e": 3, "c": 4, "h": 8}
_LOSS = {"chunk_size": 1, "lr": 0.1, "beta1": 0.9, "beta2": 0.9, "epsilon": 1e-8, "step": 1, "bias_correction": 1}
_PAGES = {"key_cache": "n b p c", "value_cache": "n b p c"}
_SEQUENCES = {"sequence_lengths": "int32 e", "block_tables": "int32 e k"}
_OF_PAGES = {
    **{name: [3, 2, 1] for name in ("sequence_lengths", "context_lens")},
    "cu_seqlens": [0, 3, 5, 6],
    "block_tables": [[1, 2], [3, 0], [4, 5]],
}
COLOSSAL = [
    ShapedCall(
        "LayerNormLoader.backward_affine",
        {**like("dout x", "t c"), **like("mean invvar", "t"), **like("gamma beta", "c")},
        {"normalized_shape": [8], "epsilon": 1e-5},
    ),
    ShapedCall(
        "LayerNormLoader.forward_affine",
        {"x": "t c", **like("gamma beta", "c")},
        {"normalized_shape": [8], "epsilon": 1e-5},
    ),
    ShapedCall(
        "MoeLoader.combine_backward",
        {"tokens_grad": "6 8", "expert_tokens": "12 8", "logits": "6 3", **_MOE},
        _SIZES_OF_MOE,
        _PLACES,
    ),
    ShapedCall("MoeLoader.combine_forward", {"expert_tokens": "12 8", "logits": "6 3", **_MOE}, _SIZES_OF_MOE, _PLACES),
    ShapedCall("MoeLoader.dispatch_backward", {"expert_grad": "12 8", **_MOE}, {"s": 6, "ec": 12, "h": 8}, _PLACES),
    ShapedCall("MoeLoader.dispatch_forward", {"batch_tokens": "6 8", **_MOE}, {"s": 6, "ec": 12, "h": 8}, _PLACES),
    ShapedCall(
        "ScaledMaskedSoftmaxLoader.backward", like("output_grads softmax_results", "b h t u"), {"scale_factor": 1.0}
    ),
    ShapedCall(
        "ScaledMaskedSoftmaxLoader.forward",
        {"x": "b h t u", **MASKS},
        {"scale_factor": 1.0},
        accepts={"mask": "0 of 1"},
    ),
    ShapedCall(
        "ScaledUpperTriangleMaskedSoftmaxLoader.backward",
        like("output_grads softmax_results", "b t t"),
        {"scale_factor": 1.0},
    ),
    ShapedCall(
        "FusedOptimizerLoader.multi_tensor_adam",
        {"noop_flag": "int32 1", "tensor_lists": "4[[]] b c"},
        {**_LOSS, "mode": 1, "weight_decay": 0.1, "div_scale": 2.0},
    ),
    ShapedCall(
        "FusedOptimizerLoader.multi_tensor_lamb",
        {"noop_flag": "any int32 1", "tensor_lists": "4[[]] b c", "global_grad_norm": "1"},
        {**_LOSS, "mode": 1, "weight_decay": 0.1, "grad_averaging": 1, "max_grad_norm": 1.0},
    ),
    ShapedCall(
        "FusedOptimizerLoader.multi_tensor_scale",
        {"noop_flag": "int32 1", "tensor_lists": "2[[]] b c"},
        {"chunk_size": 1, "scale": 2.0},
    ),
    ShapedCall(
        "FusedOptimizerLoader.multi_tensor_sgd",
        {"noop_flag": "int32 1", "tensor_lists": "3[[]] b c"},
        {
            "chunk_size": 1,
            "wd": 0.1,
            "momentum": 0.9,
            "dampening": 0.0,
            "lr": 0.1,
            "nesterov": False,
            "first_run": False,
            "wd_after_momentum": True,
            "scale": 2.0,
        },
    ),
    ShapedCall(
        "InferenceOpsLoader.context_kv_cache_memcpy",
        {**like("key value", "t b c"), **_PAGES, **_SEQUENCES, "cu_seqlens": "int32 4"},
        {"max_seq_len_in_batch": 3},
        _OF_PAGES,
    ),
    ShapedCall("InferenceOpsLoader.convert_fp8", {"x": "b c", "output": "uint8 b c"}),
    ShapedCall(
        "InferenceOpsLoader.decode_kv_cache_memcpy",
        {**like("key value", "e b c"), **_PAGES, **_SEQUENCES},
        values=_OF_PAGES,
    ),
    ShapedCall(
        "InferenceOpsLoader.flash_decoding_attention",
        {
            **like("out query", "e h c"),
            **_PAGES,
            "context_lens": "int32 e",
            "block_tables": "int32 e k",
            "alibi_slopes": "h",
            **like("tmp_out exp_sums max_logits", "any 1"),
        },
        {"block_size": 5, "max_context_len": 3, "scale": 1.0},
        _OF_PAGES,
    ),
    ShapedCall("InferenceOpsLoader.fused_add_rms_layernorm", {**like("x residual", "t c"), "weight": "c"}, EPS),
    ShapedCall(
        "InferenceOpsLoader.get_cos_and_sin",
        {**like("cos_cache sin_cache", "p c"), **like("cos sin", "3+ c"), "sequence_lengths": "int32 3"},
        {"max_seq_len_in_batch": 3, "is_prompts": False},
        _OF_PAGES,
        accepts={"sequence_lengths": "0 of 1, 0 smaller"},
    ),
    ShapedCall("InferenceOpsLoader.rms_layernorm", {**like("out x", "t c"), "weight": "c"}, EPS),
    ShapedCall("InferenceOpsLoader.rotary_embedding", {"query": "t h c", "key": "t b c", **like("cos sin", "t c")}),
    ShapedCall(
        "InferenceOpsLoader.rotary_embedding_and_cache_copy",
        {"query": "e h c", **like("key value", "e b c"), **like("cos sin", "e c"), **_PAGES, **_SEQUENCES},
        values=_OF_PAGES,
    ),
]
