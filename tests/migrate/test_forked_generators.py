"""Modules that repeat their random numbers, before and after their migration, with torch's own functions."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch

from anyaccel import set_accelerator
from anyaccel.accelerator.xpu_accelerator import XPU_Accelerator
from anyaccel.migrate.source import migrate_source

from . import corpus


def module_of(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "forked"}
    exec(compile(source, "forked.py", "exec"), names)  # noqa: S102  # a case of the corpus
    return names


@pytest.mark.parametrize("is_migrated", [False, True])
def test_a_layer_repeats_its_dropout_on_a_cpu(is_migrated: bool) -> None:
    source = corpus.before("forked-generators")
    layer = module_of(migrate_source(source).new if is_migrated else source)["Repeatable"](torch.nn.Dropout(0.5))
    x = torch.ones(64)
    layer.record(x)
    first, drawn = layer.net(x), torch.rand(1)
    again = layer.repeat(x)
    assert torch.equal(first, again)
    assert not torch.equal(drawn, torch.rand(1)), "the generator goes on where it was"


def test_another_accelerators_generators_are_forked_and_restored() -> None:
    layer = module_of(migrate_source(corpus.before("forked-generators")).new)["Repeatable"](torch.nn.Identity())
    set_accelerator(XPU_Accelerator())
    restored = mock.Mock()
    with (
        mock.patch.multiple(torch.xpu, get_rng_state=mock.Mock(return_value="before"), set_rng_state=restored),
        mock.patch("torch.xpu.device", mock.MagicMock()),
    ):
        layer.had_cuda, layer.state, layer.devices, layer.states = True, torch.get_rng_state(), [0], ["recorded"]
        layer.repeat(torch.ones(1))
    assert [each.args for each in restored.call_args_list] == [("recorded",), ("before", 0)]


@pytest.mark.parametrize("target", ["anyaccel", "deepspeed"])
def test_the_type_is_the_accelerators_for_each_target_that_has_a_name(target: str) -> None:
    new = migrate_source(corpus.before("forked-generators"), target).new
    assert new.count("device_type=get_accelerator().device_name()") == 6


def test_torchs_own_accelerator_may_be_none_and_the_fork_is_reported() -> None:
    migration = migrate_source(corpus.before("forked-generators"), "torch.accelerator")
    assert "device_type=torch" not in migration.new
    assert sum("pass device_type=" in site.reason for site in migration.sites) == 12
