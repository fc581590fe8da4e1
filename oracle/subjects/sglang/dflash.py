"""_DflashDraftSampler of SGLang behind its own gate, over static buffers that are padded."""

import logging
from bisect import bisect_left
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch

from ...judge.protocol import Setting, Tensors
from .shipped import WORKER, modules


class Reasons(logging.Handler):
    """Keeps the last line that a gate logged."""

    def __init__(self) -> None:
        """Before any line."""
        super().__init__(logging.INFO)
        self.line = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.line = record.getMessage()


def gated(setting: Setting, rows: int, block: int) -> Any:
    """The sampler that the worker's gate builds. NotImplementedError: it declined, and why."""
    worker: Any = modules()[WORKER]
    padded = setting["head"].shape[0]
    shard = SimpleNamespace(
        num_added_elements=0,
        num_org_elements=setting["vocabulary"],
        org_vocab_start_index=0,
        num_org_elements_padded=padded,
    )
    head = SimpleNamespace(weight=setting["head"], shard_indices=shard, quant_method=None)
    decode = SimpleNamespace(bs=[rows])
    graph = SimpleNamespace(cuda_graph_config=SimpleNamespace(decode=decode))
    me = SimpleNamespace(
        _target_tp_rank=0,
        block_size=block,
        selector=None,
        lilicorr=None,
        _is_domino=False,
        device=setting["device"],
        _selector_sampling_enabled=True,
        domino_candidate_pool_size=0,
        draft_model=SimpleNamespace(prefix_gru=None, embed_proj=None),
        model_runner=SimpleNamespace(model_config=SimpleNamespace(vocab_size=padded)),
        _target_worker=SimpleNamespace(
            model_runner=SimpleNamespace(model=SimpleNamespace(lm_head=head))
        ),
    )
    reasons, level = Reasons(), worker.logger.level
    worker.logger.addHandler(reasons)
    worker.logger.setLevel(logging.INFO)
    worker.get_exec = lambda: SimpleNamespace(graph=graph)
    try:
        built = worker.DFlashWorkerV2._maybe_build_draft_sampler(me)
    finally:
        worker.logger.removeHandler(reasons)
        worker.logger.setLevel(level)
    if built is None:
        raise NotImplementedError(reasons.line)
    return built


class Dflash:
    """The greedy tail; on CUDA one graph a bucket."""

    def __init__(self, setting: Setting) -> None:
        """Build, and record where a GPU is."""
        self.setting = setting
        self.buckets, self.block = tuple(setting["buckets"]), setting["drafts"] + 1
        rows, head, device = self.buckets[-1], setting["head"], setting["device"]
        self.tail = gated(setting, rows, self.block)
        self.hidden = torch.zeros(rows, self.block, head.shape[1], dtype=head.dtype, device=device)
        self.rows = self.replays = self.last = 0
        self.records = setting["engine"] == "cuda"
        self.graphs = {bucket: self.recorded(bucket) for bucket in self.buckets if self.records}

    def recorded(self, rows: int) -> Any:
        """The tail over the first rows, in a graph."""
        self.run(rows)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.run(rows)
        return graph

    def run(self, rows: int) -> None:
        """The tail over the first rows of the static buffer."""
        self.tail(self.hidden[:rows].flatten(0, 1))

    def describe(self) -> Mapping[str, Any]:
        """Greedy blocks over two buffers."""
        abilities = ("BUFFERS", "WEIGHTS", *(("REPLAYS",) if self.records else ()))
        return {"name": "SGLang 0.5.23 _DflashDraftSampler", "abilities": abilities}

    def load(self, inputs: Tensors) -> None:
        """Copy the hidden states; the anchor is not used."""
        self.rows = len(inputs["anchor"])
        self.hidden[: self.rows].copy_(inputs["hidden"])

    def replay(self) -> None:
        """One block of the bucket that holds the batch."""
        self.last = self.buckets[bisect_left(self.buckets, self.rows)]
        if self.records:
            self.graphs[self.last].replay()
            self.replays += 1
        else:
            self.run(self.last)

    def path(self) -> Mapping[str, Any]:
        """The recording that was replayed."""
        told = {"folded": self.replays > 0, "reason": "folded", "replays": self.replays}
        return {**told, "bucket": self.last, "kernels": ()}

    def read(self) -> Tensors:
        """A view of the tail's buffer."""
        drafts = self.block - 1
        return {"tokens": self.tail.out[: self.rows * drafts].view(self.rows, drafts)}

    def reweight(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Copy into the head in use."""
        for name, values in weights.items():
            self.setting[name].copy_(values)

    def buffers(self) -> Mapping[str, Any]:
        """The static buffers; pad rows keep what they held."""
        out = self.tail.out.view(self.buckets[-1], self.block - 1)
        entry = {"pad": "undefined", "rows": True}
        hidden = {**entry, "tensor": self.hidden, "role": "input"}
        return {"hidden": hidden, "out": {**entry, "tensor": out, "role": "output"}}


def dflash(setting: Setting) -> Dflash:
    """The greedy sampler of one rank."""
    if setting["family"] != "dflash":
        raise NotImplementedError("_DflashDraftSampler drafts dflash blocks")
    if setting["forward"] != "given":
        raise NotImplementedError("no draft model of its own")
    if setting.get("shard_ranges"):
        raise NotImplementedError("SGLang's ranks need its own process groups")
    return Dflash(setting)
