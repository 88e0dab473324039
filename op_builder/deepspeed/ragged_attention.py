"""Attention of ragged batches over a blocked cache: the work is split into atoms, which are ranges of one sequence's queries."""

from __future__ import annotations

import ctypes

import torch

from ...kernels.functions.autocast import without_autocast
from ...kernels.functions.outputs import require_apart, require_writable
from ..arguments import require_floats, require_integers, require_like

__all__ = ["RaggedAttention", "block_numbers", "require_on_host"]

_ADDRESS, _FIRST, _QUERIES, _BLOCKS, _EXTENT, _POSITION = 0, 2, 3, 4, 5, 6
"""The columns of an atom, eight int32: an address (two columns), its queries' first row and number, the blocks and tokens
that its last query sees, and its first query's position in the sequence; the last column is unused."""


class RaggedAttention:
    """deepspeed's functions that build and compute atoms."""

    def build_atoms(
        self, atoms_ten: torch.Tensor, batch_metadata: torch.Tensor, seq_metadata: torch.Tensor, kv_ptrs: torch.Tensor,
        q_block_size: int, kv_block_size: int,
    ) -> int:  # fmt: skip
        """Split a batch's queries into atoms.

        Args:
            atoms_ten: int32 ``(most atoms, 8)``, contiguous; written.
            batch_metadata: int32 ``(2,)``: tokens, sequences.
            seq_metadata: int32 ``(sequences, 4)``.
            kv_ptrs: int64 ``(sequences,)``, the address of each sequence's block numbers.
            q_block_size: the largest number of queries of an atom.
            kv_block_size: the number of tokens in a block of the cache.

        Returns:
            The number of atoms.

        Raises:
            ValueError: when a shape or dtype does not fit, or there are too many atoms; nothing is written.
        """
        require_like("build_atoms", (2,), torch.int32, batch_metadata=batch_metadata)
        require_like("build_atoms", (*atoms_ten.shape[:1], 8), torch.int32, atoms_ten=atoms_ten)
        require_integers("build_atoms", (2,), seq_metadata=seq_metadata)
        require_like("build_atoms", (seq_metadata.shape[0], 4), seq_metadata.dtype, seq_metadata=seq_metadata)
        require_like("build_atoms", (kv_ptrs.numel(),), torch.int64, kv_ptrs=kv_ptrs)
        require_writable("build_atoms", atoms_ten, batch_metadata)
        sequences = int(batch_metadata[1])
        atoms = []
        if q_block_size > 0 and kv_block_size > 0 and 0 <= sequences <= min(seq_metadata.shape[0], kv_ptrs.shape[0]):
            for described, address in zip(seq_metadata[:sequences].tolist(), kv_ptrs[:sequences].tolist(), strict=True):
                atoms += _atoms_of(described, address, q_block_size, kv_block_size)
        elif sequences or q_block_size <= 0 or kv_block_size <= 0:
            msg = (
                f"build_atoms failed: got {sequences} sequences, metadata of {seq_metadata.shape[0]}, addresses of "
                f"{kv_ptrs.shape[0]}, blocks of {q_block_size} queries and {kv_block_size} keys; expected a row and an address "
                f"for each sequence, and blocks of 1 or more. Fix: pass the metadata and addresses of the batch's wrapper."
            )
            raise ValueError(msg)
        if len(atoms) > atoms_ten.shape[0] or not atoms_ten.is_contiguous():
            msg = (
                f"build_atoms failed: got a tensor of {atoms_ten.shape[0]} atoms with strides {atoms_ten.stride()}; expected "
                f"{len(atoms)} or more, contiguous. Fix: pass torch.empty(({len(atoms)}, 8), dtype=torch.int32)."
            )
            raise ValueError(msg)
        if atoms:
            atoms_ten[: len(atoms)] = torch.tensor(atoms, dtype=torch.int64, device="cpu").to(torch.int32)
        return len(atoms)

    def flash_attn_by_atoms(
        self, out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attention_atoms: torch.Tensor,
        softmax_scale: float, is_causal: bool,
    ) -> None:  # fmt: skip
        """Write the attention of each atom's queries over the blocks of its sequence.

        Args:
            out: ``(tokens, heads * head size)``, written for the queries of the atoms.
            q: like ``out``.
            k: ``(blocks, block size, key heads, head size)``; the number of heads is a multiple of the key heads.
            v: like ``k``.
            attention_atoms: int32 ``(atoms, 8)``, from :meth:`build_atoms`; their addresses must still be valid.
            softmax_scale: the factor for the scores.
            is_causal: each query sees only the tokens up to its own position.

        Raises:
            ValueError: when a shape or dtype does not fit, or an atom does not fit the tensors.
            RuntimeError: when elements of the output share memory.
        """
        name = "flash_attn_by_atoms"
        require_floats(name, (2,), q=q)
        require_floats(name, (4,), k=k, v=v)
        require_like(name, tuple(q.shape), q.dtype, out=out)
        require_like(name, tuple(k.shape), q.dtype, k=k, v=v)
        require_like(name, (*attention_atoms.shape[:1], 8), torch.int32, attention_atoms=attention_atoms)
        require_on_host(name, attention_atoms)
        require_writable(name, out, q)
        require_apart(name, [out, q])  # atoms may have queries in common
        blocks, block_size, key_heads, head_size = k.shape
        if min(block_size, key_heads, head_size) == 0 or q.shape[1] % (head_size * key_heads):
            msg = (
                f"{name} failed: got queries of {q.shape[1]} channels and a cache of shape {tuple(k.shape)}; expected a multiple "
                f"of its heads. Fix: pass q of (tokens, heads * {head_size}), with a multiple of {key_heads} heads."
            )
            raise ValueError(msg)
        atoms = attention_atoms.clone(memory_format=torch.contiguous_format)  # may begin in the middle of 8 bytes
        addresses = atoms.view(torch.int64)[:, 0].tolist()
        checked = []
        for atom, address in zip(attention_atoms.tolist(), addresses, strict=True):
            _require_fits(name, atom, q.shape[0], block_size)
            checked.append((atom, block_numbers(name, address, atom[_BLOCKS], blocks)))
        for atom, numbers in checked:
            first = atom[_FIRST]
            out[first : first + atom[_QUERIES]] = _attended(atom, q, k[numbers], v[numbers], softmax_scale, is_causal)


def _attended(
    atom: list[int], q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, is_causal: bool
) -> torch.Tensor:
    """Return the attention of one atom's queries over its blocks."""
    first, count, extent = atom[_FIRST], atom[_QUERIES], atom[_EXTENT]
    queries = q[first : first + count].unflatten(1, (-1, k.shape[-1])).transpose(0, 1)
    keys, values = (blocks.flatten(0, 1)[:extent].transpose(0, 1) for blocks in (k, v))
    mask = None
    if is_causal:
        places = atom[_POSITION] + torch.arange(count, device=q.device)
        mask = torch.arange(extent, device=q.device) <= places[:, None]
    with without_autocast(q):
        result = torch.nn.functional.scaled_dot_product_attention(
            queries[None], keys[None], values[None], mask, scale=scale, enable_gqa=True
        )
    return result[0].transpose(0, 1).flatten(1)


def require_on_host(function: str, addresses: torch.Tensor) -> None:
    """Check that a tensor of addresses is on the host, so that they are host addresses.

    Raises:
        NotImplementedError: when it is not.
    """
    if addresses.device.type != "cpu":
        msg = (
            f"{function} failed: got addresses on {addresses.device}; expected host addresses. Fix: for a GPU, use deepspeed's "
            f"RaggedOpsBuilder."
        )
        raise NotImplementedError(msg)


def block_numbers(function: str, address: int, count: int, blocks: int) -> torch.Tensor:
    """Return the first numbers at a host address, as int64; the caller guarantees that it is valid.

    Raises:
        ValueError: when the address is null, or a number is not that of a block.
    """
    if count == 0:
        return torch.empty(0, dtype=torch.int64, device="cpu")
    numbers = list((ctypes.c_int32 * count).from_address(address)) if address else []
    if not numbers or min(numbers) < 0 or max(numbers) >= blocks:
        msg = (
            f"{function} failed: got the blocks {numbers[:8] or 'at no address'} of a cache of {blocks}; expected {count} "
            f"numbers from 0 to {blocks - 1}. Fix: keep the list of blocks alive, and allocate all needed blocks."
        )
        raise ValueError(msg)
    return torch.tensor(numbers, device="cpu")


def _atoms_of(described: list[int], address: int, q_block_size: int, kv_block_size: int) -> list[list[int]]:
    start, tokens, seen, _ = described
    halves = torch.tensor([address], device="cpu").view(torch.int32).tolist()
    atoms = []
    for done in range(0, tokens, q_block_size):
        queries = min(tokens - done, q_block_size)
        end = seen + done + queries
        atoms.append([*halves, start + done, queries, -(-end // kv_block_size), end, seen + done, 0])
    return atoms


def _require_fits(function: str, atom: list[int], rows: int, block_size: int) -> None:
    first, queries, blocks, extent = atom[_FIRST], atom[_QUERIES], atom[_BLOCKS], atom[_EXTENT]
    if (
        min(first, queries, blocks, extent, atom[_POSITION]) < 0
        or first + queries > rows
        or extent > blocks * block_size
    ):
        msg = (
            f"{function} failed: got an atom of {queries} queries from row {first} that sees {extent} tokens in {blocks} blocks "
            f"of {block_size}; expected rows of {rows}, and blocks that hold its tokens. Fix: pass the atoms of this batch."
        )
        raise ValueError(msg)
