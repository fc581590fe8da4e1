"""DsparkDraftSampler as the tail of a recording, staged as the proposer stages it.

The tail runs over static buffers that outlive it and are padded to a bucket, as its graph runner
keeps them: pad rows hold what earlier batches left. On CUDA each bucket is one graph; elsewhere the
tail is called as the runner's warm-up calls it, and no recording is claimed. Results are views of
the tail's buffers, as the proposer hands them on. Confidence flags are told from NaN in the
confidence, since the sampler has none.
"""

from bisect import bisect_left
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch

from ...judge.protocol import Setting, Tensors
from .. import alone
from .borrowed import draft_model
from .shipped import DRAFT, SAMPLER, STEP, SYNC, OneRank, admitted, modules


class Batches:
    """The sampling parameters of a batch; the tensors are new for every load."""

    def __call__(self, inputs: Tensors) -> Any:
        """As SamplingBatchInfo holds them."""
        top_ks = admitted(inputs["top_k"], inputs["temperature"])
        return SimpleNamespace(temperatures=inputs["temperature"].clone(), top_ks=top_ks)


class EditedBatches(Batches):
    """The same tensors for every batch of a size, edited in place."""

    def __init__(self) -> None:
        """Begin before any batch."""
        self.held: dict[int, Any] = {}

    def __call__(self, inputs: Tensors) -> Any:
        """Write into the tensors of the last batch of this size."""
        fresh = super().__call__(inputs)
        info = self.held.setdefault(len(fresh.top_ks), fresh)
        info.temperatures.copy_(fresh.temperatures)
        info.top_ks.copy_(fresh.top_ks)
        return info


class Sampler:
    """The tail, its staging, and on CUDA its recordings."""

    name = "SGLang 0.5.23 DsparkDraftSampler"

    def __init__(self, setting: Setting, batches: Batches) -> None:
        """Build the tail by its own builder. NotImplementedError: it declined."""
        self.setting, self.batches = setting, batches
        self.model = draft_model(setting)
        self.buckets, self.drafts = tuple(setting["buckets"]), setting["drafts"]
        self.queries = self.drafts if setting["sample_from_anchor"] else self.drafts + 1
        rows, device, head = self.buckets[-1], setting["device"], setting["head"]
        self.hidden = torch.zeros(
            rows, self.queries, head.shape[1], dtype=head.dtype, device=device
        )
        self.ids = torch.zeros(rows, self.queries, dtype=torch.int64, device=device)
        self.offset = torch.zeros(1, dtype=torch.int64, device=device)
        self.records = setting["engine"] == "cuda"
        self.graphs: dict[int, Any] = {}
        self.inputs: Tensors = {}
        self.rows = self.replays = self.last = 0
        self.folded = False
        self.sync = modules()[SYNC].SpecTpSync(OneRank())
        self.noise = self.noise_of(setting["seed"])
        self.tail = self.built()
        self.proposer = SimpleNamespace(
            _staged_params_key=None, num_staged_params_calls=0, num_staged_params_skips=0
        )
        self.reseed(setting["seed"])

    def noise_of(self, seed: int) -> Any:
        """Key and counter, as the proposer makes them."""
        drafting = modules()[DRAFT]
        return drafting.DraftNoise(key=drafting.draft_noise_key(seed), offset=self.offset)

    def built(self) -> Any:
        """The tail by its own builder. NotImplementedError: it declined."""
        setting, rows = self.setting, self.buckets[-1]
        tail = modules()[SAMPLER].maybe_build_draft_sampler(
            draft_model=self.model,
            gamma=self.drafts,
            max_bs=rows,
            device=setting["device"],
            tp_rank=0,
            noise=self.noise,
            greedy_draft=False,
            tp_sync=self.sync,
        )
        if tail is None:
            raise NotImplementedError("maybe_build_draft_sampler keeps the proposal eager")
        dtype = torch.promote_types(setting["head"].dtype, setting["w1"].dtype)
        shape = (rows, self.drafts, setting["vocabulary"])
        # The tail sizes these in its first call, which asks the driver of a GPU.
        tail.step_logits = torch.empty(shape, dtype=dtype, device=setting["device"])
        return tail

    def reseed(self, seed: int) -> None:
        """Another key, which a recording holds as a plain number: record anew."""
        self.noise = self.tail._noise = self.noise_of(seed)
        if self.records:
            self.record()
        self.offset.zero_()

    def record(self) -> None:
        """One graph a bucket, largest first, after a warm-up on a side stream."""
        self.graphs, pool = {}, None
        for rows in reversed(self.buckets):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.run(rows)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                self.run(rows)
            pool = pool or graph.pool()
            self.graphs[rows] = graph

    def run(self, rows: int) -> None:
        """The tail over the first rows of the static buffers."""
        with torch.no_grad():
            self.tail(self.hidden[:rows].flatten(0, 1), self.ids[:rows].flatten())

    def describe(self) -> Mapping[str, Any]:
        """What it can do; its noise is the counter dialect without an upper bound of u."""
        abilities = ["DRAWS", "CLAIMS", "NOISE", "EAGER", "WEIGHTS", "HEADS", "CONFIDENCE"]
        abilities += ["BUFFERS", *(["REPLAYS"] if self.records else [])]
        on_cpu = self.setting["device"] == "cpu"
        stages = "torch-cpu" if on_cpu else "triton-approx-cuda"
        return {"name": self.name, "abilities": tuple(abilities), "stages": stages}

    def load(self, inputs: Tensors) -> None:
        """Copy hidden states and anchors; stage the parameters of the batch."""
        self.rows = len(inputs["anchor"])
        self.hidden[: self.rows].copy_(inputs["hidden"])
        self.ids[: self.rows, 0].copy_(inputs["anchor"])
        stage = modules()[DRAFT].DraftBlockProposer._stage_sampling_params
        stage(self.proposer, self.tail, bs=self.rows, sampling_info=self.batches(inputs))

    def replay(self) -> None:
        """One block of the bucket that holds the batch."""
        self.last = self.buckets[bisect_left(self.buckets, self.rows)]
        if self.records:
            self.graphs[self.last].replay()
            self.folded, self.replays = True, self.replays + 1
        else:
            self.run(self.last)

    def path(self) -> Mapping[str, Any]:
        """The recording that was replayed."""
        reason = "folded" if self.folded else "nothing was replayed"
        told = {"folded": self.folded, "reason": reason, "replays": self.replays}
        return {**told, "bucket": self.last, "kernels": ()}

    def read(self) -> Tensors:
        """Views of the tail's buffers."""
        rows, tail = self.rows, self.tail
        outputs = {
            "tokens": tail.out[: rows * self.drafts].view(rows, self.drafts),
            "step_logits": tail.step_logits[:rows],
            "temperature": tail.params.temperatures[:rows],
            "greedy": tail.params.greedy_mask[:rows],
        }
        if tail.confidence_out is not None:
            confidence = tail.confidence_out[:rows]
            outputs["confidence"] = confidence
            outputs["confidence_raw"] = tail.confidence_raw_out[:rows]
            outputs["confidence_flags"] = confidence.isnan().to(torch.uint8)
        return outputs

    def eager(self, inputs: Tensors) -> Tensors:
        """A block by sample_draft_block, outside the static buffers."""
        hidden, rows = inputs["hidden"], len(inputs["anchor"])
        drafted = hidden[:, -self.drafts :]
        with torch.no_grad():
            base, features = self.model.compute_base_logits(drafted.flatten(0, 1))
            block = modules()[DRAFT].sample_draft_block(
                base_logits=base.view(rows, self.drafts, -1),
                anchor_tokens=inputs["anchor"],
                draft_hidden=drafted,
                sampling_info=Batches()(inputs),
                markov_head=self.model.markov_head,
                noise=self.noise,
                device=torch.device(self.setting["device"]),
                tp_sync=self.sync,
                greedy_draft=False,
            )
            outputs = {
                "tokens": block.draft_tokens,
                "step_logits": block.corrected_logits,
                "temperature": block.temperatures,
                "greedy": block.greedy_mask,
            }
            if self.model.confidence_head is not None:
                confidence, raw = self.model.compute_confidence(
                    anchor_tokens=inputs["anchor"],
                    draft_tokens=block.draft_tokens,
                    confidence_features=features,
                )
                outputs |= {"confidence": confidence, "confidence_raw": raw}
                outputs["confidence_flags"] = confidence.isnan().to(torch.uint8)
        return outputs

    def noise_state(self) -> Mapping[str, Any]:
        """Key and counter of the next block."""
        told = {"dialect": "counter-unbounded", "seed_key": self.noise.key}
        return {**told, "block": int(self.offset)}

    def reweight(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Copy into the weights in use."""
        with torch.no_grad():
            for name, values in weights.items():
                self.setting[name].copy_(values)

    def buffers(self) -> Mapping[str, Any]:
        """The static buffers of tail and runner; pad rows keep what they held."""
        tail, rows = self.tail, self.buckets[-1]
        held = {
            "hidden": (self.hidden, "input"),
            "ids": (self.ids, "input"),
            "temperatures": (tail.params.temperatures, "parameter"),
            "greedy_mask": (tail.params.greedy_mask, "parameter"),
            "step_temperatures": (tail.params.step_temperatures, "parameter"),
            "out": (tail.out.view(rows, self.drafts), "output"),
            "step_logits": (tail.step_logits, "output"),
        }
        if tail.confidence_out is not None:
            held["confidence_out"] = (tail.confidence_out, "output")
            held["confidence_raw_out"] = (tail.confidence_raw_out, "output")
        entries = {
            name: {"tensor": tensor, "role": role, "pad": "undefined", "rows": True}
            for name, (tensor, role) in held.items()
        }
        state = {"tensor": self.offset, "role": "state", "pad": "undefined", "rows": False}
        return {**entries, "offset": state}


def served(setting: Setting) -> None:
    """NotImplementedError for what neither the sampler nor its harness serves."""
    if setting["family"] != "dspark":
        raise NotImplementedError("DsparkDraftSampler drafts dspark blocks")
    if setting["dialect"] != "counter":
        raise NotImplementedError("SGLang 0.5.23 draws dspark blocks from counter noise alone")
    if setting["forward"] != "given":
        raise NotImplementedError("no draft model of its own")
    if setting.get("shard_ranges"):
        raise NotImplementedError("SGLang's ranks need its own process groups")
    low = torch.promote_types(setting["head"].dtype, setting["w1"].dtype)
    if str(low) != f"torch.{setting['step_dtype']}":
        raise NotImplementedError(f"its step logits have the dtype of head and factors: {low}")
    kernel = modules()[STEP]._markov_sample_partial_kernel
    if setting["device"] != "cpu":
        alone.launchable(kernel, setting["device"])


def sampler(setting: Setting) -> Sampler:
    """The folded sampler, its batches as the server makes them."""
    served(setting)
    return Sampler(setting, Batches())


def edited(setting: Setting) -> Sampler:
    """The folded sampler, the tensors of its batches edited in place."""
    served(setting)
    return Sampler(setting, EditedBatches())
