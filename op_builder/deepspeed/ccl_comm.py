"""deepspeed 0.19.8's module ``deepspeed_ccl_comm``, with its functions and arguments, over a process group instead of oneCCL."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed.constants import default_pg_timeout

from ...accelerator.errors import AnyaccelError
from ...kernels.functions.process_bound import ProcessBound

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CCLCommError", "CCLCommModule"]

_ADDRESS_BYTES = 256  # as long as oneCCL's
_OF_ANY_STORE = timedelta(minutes=5)  # the timeout of a store that was made without one
_MARK = "anyaccel"
_REDUCTIONS = ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG")


class CCLCommError(AnyaccelError, RuntimeError):
    """A function was called too early, or its arguments do not fit; nothing was sent or written."""


class Connect(Protocol):
    """Makes the backend of a new group; all of its ranks call this."""

    def __call__(self, store: Any, rank: int, ranks: int, timeout: timedelta, global_ranks: list[int]) -> Any: ...


class _Address(NamedTuple):
    """What ranks need to meet: a store, and a prefix for the keys of one group.

    Attributes:
        prefix: unique to the group.
        host: the host of a store that this module has started; empty for the store of torch's default group.
        port: its port.
    """

    prefix: str
    host: str = ""
    port: str = ""

    def encoded(self) -> list[int]:
        text = " ".join((_MARK, *self)).encode()
        return list(text.ljust(_ADDRESS_BYTES, b"\0"))


class CCLCommModule(ProcessBound):
    """The module ``deepspeed_ccl_comm``. As in deepspeed, all calls return when the operation has ended.

    ``async_op`` is ignored in every function. ``group`` is a list of global ranks, as given to :meth:`initialize_sub_comm`;
    all ranks of the world, or an empty list, mean the world.

    Args:
        connect: makes a backend.
        host: this host's address for other ranks, where torch.distributed is not initialised.
    """

    def __init__(self, connect: Connect, host: str) -> None:
        self._connect, self._host = connect, host
        self._rank = self._size = -1
        self._store: Any = None
        self._server: Any = None
        self._world, self._made, self._sub_made = _Address(""), _Address(""), _Address("")
        self._groups: dict[tuple[int, ...], Any] = {}

    def get_kvs_addr(self, rank: int) -> list[int]:
        """Return 256 bytes that :meth:`initialize` needs on every rank: rank 0's address; zeros on the others.

        The ranks then meet in the store of torch's default group, or in a store that rank 0 starts if there is none.

        Args:
            rank: this process's rank.
        """
        if rank != 0:
            return [0] * _ADDRESS_BYTES
        prefix = uuid.uuid4().hex
        if dist.is_initialized():
            self._made = _Address(prefix)
        else:
            self._server = TCPStore(self._host, 0, is_master=True, wait_for_workers=False, timeout=default_pg_timeout)
            self._made = _Address(prefix, self._host, str(self._server.port))
        return self._made.encoded()

    def initialize(self, size: int, rank: int, kvs_data: torch.Tensor) -> None:
        """Connect all ranks; another call changes nothing unless it has a new address, for new connections.

        Args:
            size: the number of ranks.
            rank: this process's rank.
            kvs_data: uint8 ``(256,)``, what rank 0's :meth:`get_kvs_addr` returned; ignored on rank 0 itself.

        Raises:
            CCLCommError: when the rank is not below the size, or the address is not rank 0's.
        """
        address = self._made if rank == 0 else _decoded(kvs_data)
        if self._groups and address in (_Address(""), self._world):
            return
        _require_rank("initialize", rank, size)
        _require_made("initialize", address, "get_kvs_addr")
        store = self._store_at(address)
        world = list(range(size))
        backend = self._connected(store, address, rank, world)
        self._rank, self._size, self._store, self._world = rank, size, store, address
        self._groups = {(): backend, tuple(world): backend}

    def get_rank(self, group: int = 0) -> int:
        """Return this process's rank in the world; -1 before :meth:`initialize`.

        Args:
            group: ignored.
        """
        return self._rank

    def get_world_size(self, group: int = 0) -> int:
        """Return the number of ranks in the world; -1 before :meth:`initialize`.

        Args:
            group: ignored.
        """
        return self._size

    def get_sub_kvs_addr(self, first: bool) -> list[int]:
        """Return 256 bytes that :meth:`initialize_sub_comm` needs on every rank of a group; zeros unless ``first``.

        Args:
            first: whether this is the group's first rank.
        """
        if not first:
            return [0] * _ADDRESS_BYTES
        self._sub_made = self._world._replace(prefix=uuid.uuid4().hex)
        return self._sub_made.encoded()

    def initialize_sub_comm(self, size: int, rank: int, kvs_data: torch.Tensor, ranks: list[int]) -> None:
        """Connect the ranks of a group, which all call this.

        Args:
            size: the number of ranks in the group.
            rank: this process's number in the group.
            kvs_data: uint8 ``(256,)``, what the first rank's :meth:`get_sub_kvs_addr` returned; ignored on that rank itself.
            ranks: the group's global ranks, in order.

        Raises:
            CCLCommError: before :meth:`initialize`, and when the numbers do not fit or the address is not the first rank's.
        """
        self._backend("initialize_sub_comm", ())
        _require_rank("initialize_sub_comm", rank, size)
        if len(ranks) != size or ranks[rank] != self._rank:
            msg = (
                f"initialize_sub_comm failed: got size {size}, number {rank} and ranks {ranks} on rank {self._rank}; expected "
                f"{size} ranks, with this one at that position. Fix: pass len(ranks) and ranks.index(rank)."
            )
            raise CCLCommError(msg)
        address, self._sub_made = self._sub_made if rank == 0 else _decoded(kvs_data), _Address("")
        _require_made("initialize_sub_comm", address, "get_sub_kvs_addr")
        self._groups[tuple(ranks)] = self._connected(self._store, address, rank, ranks)

    def broadcast(self, data: torch.Tensor, src: int, group: Sequence[int], async_op: bool) -> None:
        """Copy a tensor from one rank to the others.

        Args:
            data: any CPU tensor; written, except on the rank that it comes from.
            src: that rank's number in the group.
            group: see the class.
            async_op: ignored.

        Raises:
            CCLCommError: when there is no such group.
            RuntimeError: when the ranks' tensors differ, or a rank has failed.
        """
        tensors = [_tensor("broadcast", data)]
        options = dist.BroadcastOptions()
        options.rootRank = src
        self._backend("broadcast", group).broadcast(tensors, options).wait()

    def all_reduce(self, data: torch.Tensor, op: Any, group: Sequence[int], async_op: bool) -> None:
        """Replace a tensor by the reduction of the ranks' tensors.

        Args:
            data: any CPU tensor; written. The sum of bools is their OR.
            op: a member of ``deepspeed.comm.ReduceOp``, or torch's.
            group: see the class.
            async_op: ignored.

        Raises:
            CCLCommError: when there is no such group or reduction.
            RuntimeError: when the ranks' tensors differ, or a rank has failed.
        """
        self._reduce("all_reduce", data, op, group)

    def all_reduce_caching(
        self, data: torch.Tensor, op: Any, match_id: str, group: Sequence[int], async_op: bool
    ) -> None:
        """Do the same as :meth:`all_reduce`; there is nothing to cache.

        Args:
            data: see :meth:`all_reduce`.
            op: see :meth:`all_reduce`.
            match_id: ignored.
            group: see the class.
            async_op: ignored.

        Raises:
            CCLCommError: when there is no such group or reduction.
            RuntimeError: when the ranks' tensors differ, or a rank has failed.
        """
        self._reduce("all_reduce_caching", data, op, group)

    def inference_all_reduce(self, data: torch.Tensor, op: Any) -> None:
        """Replace a tensor by the sum of all ranks' tensors.

        Args:
            data: any CPU tensor; written.
            op: ``deepspeed.comm.ReduceOp.SUM``.

        Raises:
            CCLCommError: for another reduction.
            RuntimeError: when the ranks' tensors differ, or a rank has failed.
        """
        self._reduce("inference_all_reduce", data, op, (), ("SUM",))

    def barrier(self, group: Sequence[int], async_op: bool) -> None:
        """Wait for all ranks of a group.

        Args:
            group: see the class.
            async_op: ignored.

        Raises:
            CCLCommError: when there is no such group.
            RuntimeError: when a rank has failed.
        """
        self._backend("barrier", group).barrier(dist.BarrierOptions()).wait()

    def get_available_coll(self) -> list[str]:
        """Return the names of the collectives here; deepspeed calls torch.distributed for others."""
        return ["broadcast", "all_reduce", "inference_all_reduce", "all_reduce_caching", "barrier"]

    def _reduce(
        self, function: str, data: torch.Tensor, op: Any, group: Sequence[int], known: Sequence[str] = _REDUCTIONS
    ) -> None:
        tensors, name = [_tensor(function, data)], getattr(op, "name", "")
        if name not in known:
            msg = (
                f"{function} failed: got op={op!r}; expected a member of deepspeed.comm.ReduceOp: {', '.join(known)}. "
                f"Fix: pass deepspeed.comm.ReduceOp.SUM."
            )
            raise CCLCommError(msg)
        options = dist.AllreduceOptions()
        options.reduceOp = getattr(dist.ReduceOp, name)
        self._backend(function, group).allreduce(tensors, options).wait()

    def _backend(self, function: str, group: Sequence[int]) -> Any:
        if not isinstance(group, list | tuple):
            msg = f"{function} failed: got group {group!r}; expected a list of ranks. Fix: pass [] for all ranks."
            raise TypeError(msg)
        found = self._groups.get(tuple(group))
        if found is None:
            problem = f"got group {list(group)}; expected one of {[list(one) for one in self._groups if one]}"
            fix = "make the group first, with initialize_sub_comm on all of its ranks"
            if not self._groups:
                problem, fix = "the ranks are not connected", "call initialize first, on all ranks"
            msg = f"{function} failed: {problem}. Fix: {fix}."
            raise CCLCommError(msg)
        return found

    def _store_at(self, address: _Address) -> Any:
        if address.host and address == self._made:
            return self._server
        if address.host:
            return TCPStore(
                address.host, int(address.port), is_master=False, wait_for_workers=False, timeout=default_pg_timeout
            )
        if not dist.is_initialized():
            msg = (
                "initialize failed: rank 0 has a default group of torch.distributed, and this rank has none. "
                "Fix: call torch.distributed.init_process_group on all ranks, or on none."
            )
            raise CCLCommError(msg)
        return dist.distributed_c10d._get_default_store()

    def _connected(self, store: Any, address: _Address, rank: int, ranks: list[int]) -> Any:
        # init_process_group gives its timeout to the store, unless the program has made the store itself
        timeout = default_pg_timeout if store.timeout == _OF_ANY_STORE else store.timeout
        return self._connect(PrefixStore(address.prefix, store), rank, len(ranks), timeout, ranks)


def _decoded(kvs_data: torch.Tensor) -> _Address:
    """Return the address in a tensor; an empty one if it has none."""
    numbers = _tensor("initialize", kvs_data).flatten()
    given = bytes(numbers.tolist()) if numbers.dtype == torch.uint8 else b""
    words = given.rstrip(b"\0").decode(errors="replace").split(" ")
    return _Address(*words[1:]) if len(words) == 4 and words[0] == _MARK else _Address("")


def _require_rank(function: str, rank: int, size: int) -> None:
    if not 0 <= rank < size:
        msg = f"{function} failed: got rank {rank} of {size}; expected 0 to {size - 1}. Fix: count the ranks from 0."
        raise CCLCommError(msg)


def _require_made(function: str, address: _Address, by: str) -> None:
    if not address.prefix:
        msg = (
            f"{function} failed: got no address in kvs_data; expected what {by} returned on the group's first rank. "
            f"Fix: call {by} there, and broadcast its bytes as a uint8 tensor."
        )
        raise CCLCommError(msg)


def _tensor(function: str, data: Any) -> torch.Tensor:
    if not isinstance(data, torch.Tensor):
        msg = f"{function} failed: got {type(data).__name__}; expected a tensor. Fix: pass torch.tensor(...)."
        raise TypeError(msg)
    return data
