"""The cut beside torch's own on the same joint graph: bytes kept, and what is computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from torch import Tensor

from compiler_lab.aot.ir import JointGraph
from compiler_lab.aot.partition import partition
from compiler_lab.core.schema import nbytes

from .partition_programs import PROGRAMS, TORCH, inputs_for, joint_of, rand


def torch_saved(joint: JointGraph, inputs: Sequence[Tensor], partitioner: Callable[..., Any]) -> int:
    """Bytes that torch's own min-cut keeps of the same joint graph."""
    outs = joint.spec.forward_outputs
    fwd, _ = partitioner(joint.module, inputs, num_fwd_outputs=outs)
    (results,) = fwd.graph.output_node().args
    return sum(nbytes(n.meta["val"]) for n in results[outs:])


@pytest.mark.parametrize("name", ["gelu_sum", "norm", "two_outputs", "chain", "cross_entropy", "softmax_attention", "conv"])
def test_torch_cost_model_keeps_no_more_than_torch(name: str) -> None:
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    f, shapes = PROGRAMS[name]
    joint = joint_of(f, *(rand(*s) for s in shapes))
    ours = partition(joint, TORCH).saved_bytes
    assert ours <= torch_saved(joint, inputs_for(joint), min_cut_rematerialization_partition)
