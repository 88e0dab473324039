"""Calls of deepspeed's functions for ragged batches."""

from __future__ import annotations

import ctypes
import struct

from .call import ShapedCall, like

__all__ = ["RAGGED"]

_BLOCKS = (ctypes.c_int32 * 4)(3, 1, 0, 2), (ctypes.c_int32 * 4)(2, 0, 1, 3)
"""The blocks of two sequences, enough of them for blocks of one token: 4 tokens, and 2 after an earlier one."""
_BATCH = {"batch_metadata": "int32 2", "seq_metadata": "int32 2+ 4", "tokens_to_seq": "int32 6+", "kv_ptrs": "int64 2+"}
_OF_BATCH = {
    "batch_metadata": [6, 2],
    "seq_metadata": [[0, 4, 0, 0], [4, 2, 1, 0]],
    "tokens_to_seq": [0, 0, 0, 0, 1, 1],
    "kv_ptrs": [ctypes.addressof(block) for block in _BLOCKS],
}
_ATOMS = [
    [*struct.unpack("ii", struct.pack("q", address)), *rest]
    for address, rest in zip(_OF_BATCH["kv_ptrs"], ([0, 4, 2, 4, 0, 0], [4, 2, 1, 3, 1, 0]), strict=True)
]
_CACHE = {"kv_cache": "4+ e 2 b 4", "q": "t 4b", "k": "t 4b", "v": "t 4b"}
_CHOSEN = {"assignments": [[0, 1]] * 6, "offsets": [[i, i] for i in range(6)], "expert_counts": [6, 6, 0]}
RAGGED = [
    ShapedCall(
        "flash_attn_by_atoms",
        {**like("out q", "6 8"), **like("k v", "p e 2 4"), "attention_atoms": "int32 n 8"},
        {"softmax_scale": 1.0, "is_causal": True},
        {"attention_atoms": _ATOMS},
    ),
    ShapedCall(
        "build_atoms",
        {"atoms_ten": "int32 2+ 8", **{name: _BATCH[name] for name in _BATCH if name != "tokens_to_seq"}},
        {"q_block_size": 4, "kv_block_size": 3},
        _OF_BATCH,
    ),
    ShapedCall(
        "gather_for_logits",
        {
            "final_token_acts": "2+ c",
            "all_acts": "6+ c",
            **{name: _BATCH[name] for name in ("batch_metadata", "seq_metadata")},
        },
        values=_OF_BATCH,
    ),
    ShapedCall("kv_rotary_embeddings", {**_CACHE, **_BATCH}, {"rotary_dim": 4, "theta_base": 1e4}, _OF_BATCH),
    ShapedCall(
        "kv_trained_rotary_embeddings",
        {**_CACHE, "inv_freq": "2", **_BATCH},
        values=_OF_BATCH,
        accepts={"inv_freq": "0 of 1"},
    ),
    ShapedCall("linear_kv_copy", {**_CACHE, **_BATCH}, values=_OF_BATCH),
    ShapedCall(
        "moe_gather",
        {
            "layer_output": "t c",
            "moe_output": "12 c",
            "scores": "t k",
            "mapped_slots": "int32 t k",
            "expert_count": "int32 e",
        },
        {"normalize_scales": False},
        {"mapped_slots": [[i, i + 6] for i in range(6)]},
    ),
    ShapedCall(
        "moe_scatter",
        {
            "moe_input": "12 c",
            "expert_count_cumsums": "int64 e",
            "mapped_slots": "int32 t k",
            "activations": "t c",
            "expert_counts": "int32 e",
            "assignments": "int32 t k",
            "offsets": "int32 t k",
        },
        values=_CHOSEN,
    ),
    ShapedCall(
        "ragged_embed",
        {
            "embedded_tokens": "t c",
            "input_ids": "int32 t",
            "embedding_weight": "v c",
            "position_embedding_weight": "n c",
            **_BATCH,
            "kv_ptrs": "any int64 2",
        },
        {"pos_embed_offset": 0},
        _OF_BATCH,
    ),
    ShapedCall(
        "top_k_gating",
        {
            "expert_counts": "int32 e",
            "scores": "t k",
            "assignments": "int32 t k",
            "offsets": "int32 t k",
            "logits": "t e",
            "batch_metadata": "int32 2",
        },
        values=_OF_BATCH,
    ),
]
