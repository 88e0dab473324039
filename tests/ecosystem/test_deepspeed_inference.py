"""deepspeed's kernel injection on the CPU: transformers models keep their results; stock deepspeed has no builder there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

INJECTED = """
import sys
if sys.argv[1] == "ours":
    import anyaccel.integrations.deepspeed
import deepspeed, torch, transformers
name, sizes = sys.argv[2], dict(vocab_size=100)
if name == "GPT2LMHeadModel":
    config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=4, n_positions=64, **sizes)
elif name == "OPTForCausalLM":
    config = transformers.OPTConfig(
        num_hidden_layers=2, hidden_size=64, num_attention_heads=4, ffn_dim=256, max_position_embeddings=64,
        word_embed_proj_dim=64, **sizes,
    )
else:
    config = transformers.BertConfig(num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=256, **sizes)
torch.manual_seed(0)
model = getattr(transformers, name)(config).eval()
ids = torch.randint(3, 100, (2, 7))
with torch.no_grad():
    expected = model(ids)[0]
    continued = ids
    for _ in range(5 if hasattr(model, "generate") and name != "BertModel" else 0):
        continued = torch.cat([continued, model(continued)[0][:, -1:].argmax(-1)], 1)
engine = deepspeed.init_inference(model, dtype=torch.float32, replace_with_kernel_inject=True, max_out_tokens=64)
kinds = {type(module).__module__ for module in engine.module.modules()}
assert any(kind.startswith("deepspeed.ops.transformer.inference") for kind in kinds), kinds
with torch.no_grad():
    torch.testing.assert_close(engine(ids)[0], expected, rtol=1e-5, atol=1e-5)
if continued.shape[1] > 7:
    generated = engine.module.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=0)
    assert torch.equal(generated, continued), (generated, continued)
print("as before")
"""


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "OPTForCausalLM", "BertModel"])
def test_an_injected_model_computes_what_it_did(name: str, tmp_path: Path) -> None:
    finished = _run(tmp_path, "ours", name)
    assert finished.stdout.splitlines()[-1:] == ["as before"], finished.stdout + finished.stderr


def test_stock_deepspeed_has_no_builder_for_it(tmp_path: Path) -> None:
    finished = _run(tmp_path, "stock", "GPT2LMHeadModel")
    assert finished.returncode == 1
    assert "This op had not been implemented on CPU backend" in finished.stderr


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", INJECTED, *arguments]
    path = str(
        Path(sys.prefix) / "transformers-4"
    )  # by `make test-ecosystem`: deepspeed does not inject into models of transformers 5
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, env=environment)
