"""A handle for files with each way to move blocks that this kernel offers."""

from __future__ import annotations

from typing import Any

import pytest

from anyaccel import get_accelerator


@pytest.fixture(scope="module")
def module() -> Any:
    return get_accelerator().create_op_builder("AsyncIOBuilder").load()


@pytest.fixture(params=["io_uring", "kernel_aio", "threads"])
def backend(request: pytest.FixtureRequest, module: Any) -> str:
    try:
        module.aio_handle(backend=request.param)
    except NotImplementedError as error:
        pytest.skip(str(error))
    return str(request.param)


@pytest.fixture
def handle(module: Any, backend: str) -> Any:
    return module.aio_handle(8192, 8, False, True, 2, backend=backend)
