"""The genuine modules of SGLang that are put under test, and what stands around them."""

from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from .. import alone

KERNELS = "sglang.kernels.ops.speculative."
SPECULATIVE = "sglang.srt.speculative."
DRAFT = SPECULATIVE + "dspark_components.dspark_draft"
SAMPLER = SPECULATIVE + "dspark_components.dspark_draft_sampler"
HEADS = "sglang.srt.models.dspark"
STEP = KERNELS + "dspark.markov_sample"
GREEDY = KERNELS + "dspark.dspark_draft_model"
CHAIN = KERNELS + "reject_sampling"
ACCEPT = KERNELS + "dspark.dspark_accept"
SYNC = SPECULATIVE + "spec_tp_sync"
WORKER = SPECULATIVE + "dflash_worker_v2"
MODULES = (STEP, GREEDY, CHAIN, ACCEPT, HEADS, SYNC, DRAFT, SAMPLER, WORKER)
GENUINE = (
    *MODULES,
    KERNELS + "dflash",
    KERNELS + "dspark.dispatch",
    "sglang.srt.environ",
    "sglang.srt.utils.invariants",
    SPECULATIVE + "dflash_utils",
    SPECULATIVE + "draft_worker_common",
    SPECULATIVE + "dspark_components.dspark_config",
    SPECULATIVE + "ragged_verify",
)
OTHERS = (
    *("msgspec", "triton", "numpy", "psutil", "zmq", "orjson", "transformers", "sgl_kernel"),
    *("flashinfer", "einops", "xgrammar", "tqdm"),
)


class OneRank:
    """A tensor-parallel group of one process."""

    world_size, rank, rank_in_group, cpu_group = 1, 0, 0, None

    def broadcast(self, values: Any, src: int = 0) -> Any:
        """Everybody has them."""
        del src
        return values


def unsharded(values: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """The gather of one rank."""
    del dim
    return values


def refused(*_: Any, **__: Any) -> bool:
    """No head is quantized here."""
    return False


GIVEN: dict[str, dict[str, Any]] = {
    **{name: dict(held) for name, held in alone.THIRD_PARTIES.items()},
    "sglang.srt.distributed.communication_op": {"tensor_model_parallel_all_gather": unsharded},
    "sglang.srt.layers.linear": {"ReplicatedLinear": torch.nn.Linear},
    "sglang.srt.layers.logits_processor": {"should_apply_lm_head_quant_method": refused},
    "sglang.srt.layers.dp_attention": {"get_dp_tp_group": OneRank},
    "sglang.srt.lora.layers": {"unwrap_lora_layer": lambda layer: layer},
    "sglang.srt.models.dflash": {
        "DFlashDraftModel": type("DFlashDraftModel", (torch.nn.Module,), {})
    },
    "sglang.srt.kernel_plugins.nvidia.binding": {
        "megakernel_agree": refused,
        "megakernel_draft_sampler": lambda _: None,
    },
    "sglang.srt.runtime_context": {
        "get_parallel": lambda: SimpleNamespace(tp_group=OneRank(), tp_rank=0, tp_size=1),
        "get_platform": lambda: SimpleNamespace(is_xpu=False),
        "get_exec": lambda: None,
    },
}


@cache
def modules() -> dict[str, ModuleType]:
    """The modules under test; NotImplementedError says why there are none."""
    found = alone.load("sglang", MODULES, GENUINE, GIVEN, OTHERS)
    if alone.interpreted(found[STEP]._markov_sample_partial_kernel):
        vars(found[STEP])["libdevice"] = SimpleNamespace(log1p=interpreted_log1p)
    return found


def interpreted_log1p(x: Any) -> Any:
    """The logarithm of 1 + x in Triton's interpreter, which has no libdevice."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    with np.errstate(divide="ignore"):
        data = np.log1p(x.handle.data.astype(np.float32))
    return tl.core.tensor(TensorHandle(data, x.handle.dtype), x.type)


def admitted(top_k: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """top_k as the server admits it: a temperature of zero is served as top_k 1."""
    return torch.where(temperature < 1e-6, 1, top_k)
