"""The contract as a pytest class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..accelerator import DeepSpeedAccelerator
from .checks import CHECKS
from .outcome import Outcome, run_check

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["AcceleratorContract"]


class AcceleratorContract:
    """Subclass it, define the fixture ``accelerator``, and pytest runs every check of the contract.

    .. code-block:: python

        class TestMyAccelerator(AcceleratorContract):
            @pytest.fixture
            def accelerator(self):
                return MyAccelerator()
    """

    @pytest.fixture
    def accelerator(self) -> Iterator[DeepSpeedAccelerator]:
        """Return the accelerator under test; a subclass defines this."""
        msg = f"{type(self).__name__} has no accelerator to test. Fix: define the fixture `accelerator`."
        raise NotImplementedError(msg)

    def test_has_every_member(self, accelerator: DeepSpeedAccelerator) -> None:
        """Every name of the contract exists."""
        public = [name for name in vars(DeepSpeedAccelerator) if not name.startswith("_")]
        missing = [name for name in public if not hasattr(type(accelerator), name) and not hasattr(accelerator, name)]
        assert not missing, f"missing: {missing}"

    @pytest.mark.parametrize("member", sorted(CHECKS))
    def test_member(self, accelerator: DeepSpeedAccelerator, member: str) -> None:
        """A member does what the contract says, or raises as the contract says."""
        result = run_check(accelerator, member)
        assert result.outcome is not Outcome.WRONG, result.why

    @pytest.mark.parametrize("member", sorted(member for member in CHECKS if not member.startswith("_")))
    def test_supports_tells_the_truth(self, accelerator: DeepSpeedAccelerator, member: str) -> None:
        """``supports`` says in advance whether a member raises."""
        if not hasattr(accelerator, "supports"):
            pytest.skip("a class of deepspeed's, without supports()")
        result = run_check(accelerator, member)
        if not result.is_checked:
            pytest.skip(result.why)
        refuses = result.outcome is Outcome.UNSUPPORTED
        assert accelerator.supports(member) is not refuses
