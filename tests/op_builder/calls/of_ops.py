"""Calls of the ops' own functions."""

from __future__ import annotations

from typing import Any

from .call import ShapedCall, like

__all__ = ["MASKS", "OPS", "STEP"]

STEP: dict[str, Any] = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99}
_ONE_STEP = {"optimizer_id": 0, "step": 1, **STEP, "eps": 1e-8, "weight_decay": 0.1}
_ADAM = like("params grads exp_avgs exp_avg_sqs", "[] b c")
_FLAGS = {"noop_flag": "int32 1", "grad_scale": "1", "device_lr": "1"}
MASKS = {"mask": "bool b 1 t u"}
_ROUTING = {"routing.source": "int64 12", "routing.places": "int64 6 2", "routing.counts": "any int64 3"}
_ROUTED = {"routing.source": list(range(12)), "routing.places": [[2 * i, 2 * i + 1] for i in range(6)]}

OPS = [
    ShapedCall("cpu_adam.adam_step", {**_ADAM, "state_steps": "[]"}, STEP, values={"state_steps": 0.0}),
    ShapedCall(
        "cpu_adam.adam_update", like("param grad exp_avg exp_avg_sq", "b c"), {**_ONE_STEP, "bias_correction": True}
    ),
    ShapedCall(
        "cpu_adam.adam_rollback", like("param grad exp_avg exp_avg_sq", "b c"), {**_ONE_STEP, "bias_correction": True}
    ),
    ShapedCall(
        "cpu_adam.zenflow_adam_register_group",
        like("param grad0 grad1 exp_avg0 exp_avg1 exp_avg_sq0 exp_avg_sq1 stale", "b c"),
        {"handle": 0},
    ),
    ShapedCall("activations.bias_gelu", {"x": "b t c", "bias": "c"}),
    ShapedCall("activations.geglu", like("gate up", "b t c")),
    ShapedCall("activations.swiglu", like("gate up", "b t c")),
    ShapedCall("adagrad.adagrad_step", {**like("params grads sums", "[] b c"), "grad_scale": "1"}, {"lr": 0.1}),
    ShapedCall("dense.dense", {"x": "b t c", "weight": "o c", "bias": "o"}),
    ShapedCall("dense.linear", {"x": "b t c", "weight": "o c", "bias": "o"}),
    ShapedCall("dense.linear_backward", {"grad": "t o", "x": "t c", "weight": "o c"}),
    ShapedCall("lamb.lamb_step", {**_ADAM, **_FLAGS}, {"step": 1, "lr": 0.1}),
    ShapedCall("layer_norm.add_layer_norm", {"x": "b t c", "residual": "b t c", "weight": "c", "bias": "c"}),
    ShapedCall("layer_norm.layer_norm", {"x": "b t c", "weight": "c", "bias": "c"}),
    ShapedCall("lion.lion_step", {**like("params grads exp_avgs", "[] b c"), **_FLAGS}, {"lr": 0.1}),
    ShapedCall("multi_tensor_adam.multi_tensor_adam_step", {**_ADAM, **_FLAGS}, {"steps": [1], "lr": 0.1}),
    ShapedCall("multi_tensor.axpby", {**like("x y outputs", "[] b c"), "noop_flag": "int32 1"}, {"a": 1.0, "b": 2.0}),
    ShapedCall("multi_tensor.scale", {**like("inputs outputs", "[] b c"), "factor": "1", "noop_flag": "int32 1"}),
    ShapedCall("quantization.dequantize", {"q": "int8 n 8", "params": "4 1"}, accepts={"params": "0 of 1, 1 larger"}),
    ShapedCall(
        "quantization.dequantize_float8", {"q": "float8_e4m3fn n 8", "scales": "4"}, accepts={"scales": "0 of 1"}
    ),
    ShapedCall("rms_norm.add_rms_norm", {"x": "b t c", "residual": "b t c", "weight": "c"}),
    ShapedCall("rms_norm.rms_norm", {"x": "b t c", "weight": "c"}),
    ShapedCall(
        "rotary_embedding.rotary_embedding", {"x": "b t h 8", "cos": "t g", "sin": "t g"}, accepts={"x": "3 larger"}
    ),
    ShapedCall(
        "sgd.sgd_step", {**like("params grads momentum_buffers", "[] b c"), **_FLAGS}, {"lr": 0.1, "momentum": 0.9}
    ),
    ShapedCall(
        "softmax.scaled_masked_softmax", {"x": "b h t u", **MASKS}, accepts={"mask": "0 of 1, 2 of 1, 3 of 1, fewer"}
    ),
    ShapedCall("moe.combine", {"rows": "12 c", "weights": "6 2", **_ROUTING}, values=_ROUTED),
    ShapedCall("moe.dispatch", {"x": "6 c", **_ROUTING}, values=_ROUTED),
]
