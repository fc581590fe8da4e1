"""The only caller of a subject: plays commands, validates every mapping, fills a history."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from .counting import counted
from .fields import MalformedError, check_fields, validate
from .history import History
from .protocol import COMMIT, COUNTED, ROLES, Subject, Tensors
from .redraw import after_coins, declared_noise, rows_drawn
from .script import (
    Accept,
    Ask,
    Command,
    Count,
    Eager,
    Load,
    Observe,
    Plan,
    Poison,
    Read,
    Replay,
    Reread,
    Reseed,
    Reweight,
)

# Two values a role, neither of which a correct run leaves behind. Buffers that index memory get
# valid ids, so that a stale read misleads instead of crashing the device.
POISON = {
    "input": {"float": (float("nan"), 3.0), "int": (0, 1), "bool": (False, True)},
    "parameter": {"float": (float("nan"), 7.0), "int": (0, 1), "bool": (False, True)},
    "noise": {"float": (float("nan"), 1e-30), "int": (0, 1), "bool": (False, True)},
    "scratch": {"float": (float("nan"), 1e4), "int": (0, 1), "bool": (False, True)},
    "output": {"float": (float("nan"), 1e4), "int": (-7, -9), "bool": (False, True)},
}


def stored(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU that later replays cannot touch."""
    return tensor.detach().to("cpu", copy=True)


class Driver:
    """Plays the commands of one plan on one subject."""

    def __init__(self, subject: Subject, plan: Plan, history: History) -> None:
        """Bind a subject to a plan; events go to `history`."""
        self.subject: Any = subject
        self.plan = plan
        self.history = history
        self.abilities = tuple(history.description["abilities"])
        self.loaded = self.read_last = ""
        self.live: dict[str, torch.Tensor] = {}
        self.returned: list[Tensors] = []
        self.targets: dict[str, Tensors] = {}

    def play(self, commands: Iterable[Command]) -> None:
        """Play commands in order; every one leaves one event."""
        for command in commands:
            verb = type(command).__name__.lower()
            event = getattr(self, verb)(command)
            self.history.events.append({"verb": verb, **event})

    def place(self, name: str) -> dict[str, torch.Tensor]:
        """The named inputs on the subject's device, as new tensors."""
        device = self.plan.setting["device"]
        return {
            field: tensor.to(device, copy=True) for field, tensor in self.plan.inputs[name].items()
        }

    def rows(self) -> int:
        """B of what is loaded."""
        return int(self.plan.inputs[self.loaded]["anchor"].shape[0])

    def noise(self) -> dict[str, Any]:
        """The noise state of a subject that has one, stored."""
        if "NOISE" not in self.abilities:
            return {}
        state = dict(self.subject.noise_state())
        return {k: stored(v) if isinstance(v, torch.Tensor) else v for k, v in state.items()}

    def path(self) -> dict[str, Any]:
        """What the subject says of the way the last block took."""
        if "REPLAYS" not in self.abilities:
            return {}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in self.subject.path().items()}

    def reseed(self, command: Reseed) -> dict[str, Any]:
        """Restart the noise; a subject without a noise state is left alone."""
        if "NOISE" in self.abilities:
            self.subject.reseed(command.seed)
        return {"seed": command.seed}

    def load(self, command: Load) -> dict[str, Any]:
        """Load named inputs, in new tensors or by editing the last ones in place."""
        if command.edit:
            for field, tensor in self.place(command.inputs).items():
                self.live[field].copy_(tensor)
        else:
            self.live = self.place(command.inputs)
        self.loaded = command.inputs
        self.subject.load(dict(self.live))
        return {"inputs": command.inputs, "edit": command.edit}

    def replay(self, command: Replay) -> dict[str, Any]:
        """Run one block and store the noise it drew, as far as the subject shows its state."""
        return self.around(self.subject.replay, redraw=command.redraw)

    def around(self, run: Any, *, redraw: bool) -> dict[str, Any]:
        """Call `run` between two looks at path and noise state."""
        before = {"path": self.path(), "noise": self.noise()}
        run()
        after = {"path": self.path(), "noise": self.noise()}
        event = {"before": before, "after": after, "inputs": self.loaded, "rows": self.rows()}
        if redraw and before["noise"].get("dialect") == "race":
            event |= self.redrawn(before["noise"], after)
        return event

    def redrawn(self, start: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
        """The race noise of the block just run, and whether the state ended where it must."""
        setting, live = self.plan.setting, self.rows()
        rows = rows_drawn(after["path"], live, setting["buckets"])
        drawn = (start["generator"], after["noise"]["generator"])
        noise, ended = declared_noise(*drawn, setting, rows)
        return {"redrawn": noise[:live].clone(), "state_as_declared": ended}

    def count(self, command: Count) -> dict[str, Any]:
        """Count blocks from a seed: as the subject counts them, or by reading every one."""
        setting, before = self.plan.setting, self.path()
        self.subject.reseed(command.seed)
        counts: Tensors
        if command.read:
            blocks = (self.tokens() for _ in range(command.replays))
            counts = counted(blocks, self.live["anchor"], setting["vocabulary"])
        else:
            counts = self.subject.counts(command.replays)
            check_fields("counts()", counts, COUNTED, set(COUNTED), setting, self.rows())
        copies = {name: stored(table) for name, table in counts.items()}
        named = {"seed": command.seed, "replays": command.replays, "read": command.read}
        return {**named, "before": before, "after": self.path(), "counts": copies}

    def tokens(self) -> torch.Tensor:
        """Run one block and read its tokens, left where they lie."""
        self.subject.replay()
        outputs: Tensors = self.subject.read()
        validate(outputs, self.plan.setting, self.rows(), self.abilities)
        return outputs["tokens"].clone()

    def read(self, command: Read) -> dict[str, Any]:
        """Read the block, validate it, store a copy and keep what was returned."""
        return self.taken(self.subject.read(), command.only)

    def taken(self, outputs: Tensors, only: tuple[str, ...] = ()) -> dict[str, Any]:
        """Validate outputs, and copy those that are wanted."""
        validate(outputs, self.plan.setting, self.rows(), self.abilities)
        outputs = {name: outputs[name] for name in only} if only else outputs
        self.returned.append(outputs)
        self.read_last = self.loaded
        copies = {name: stored(tensor) for name, tensor in outputs.items()}
        return {"inputs": self.loaded, "outputs": copies}

    def eager(self, command: Eager) -> dict[str, Any]:
        """Run inputs outside the recording; its event holds noise and outputs."""
        loaded, self.loaded = self.loaded, command.inputs
        outputs: list[Tensors] = []
        inputs = self.place(command.inputs)
        event = self.around(lambda: outputs.append(self.subject.eager(inputs)), redraw=True)
        event |= self.taken(outputs[0])
        self.loaded = loaded
        return event

    def reweight(self, command: Reweight) -> dict[str, Any]:
        """Change weights in place, and store what is in force from here on."""
        device = self.plan.setting["device"]
        placed = {name: value.to(device, copy=True) for name, value in command.weights.items()}
        self.subject.reweight(placed)
        return {"weights": {name: stored(value) for name, value in command.weights.items()}}

    def buffer(self, name: str) -> Mapping[str, Any]:
        """One entry of buffers(), its role checked."""
        entry: Mapping[str, Any] = self.subject.buffers()[name]
        if entry["role"] not in ROLES:
            raise MalformedError(f"buffer {name!r} has role {entry['role']!r}, required: {ROLES}")
        return entry

    def poison(self, command: Poison) -> dict[str, Any]:
        """Overwrite a buffer and see that the poison took."""
        entry = self.buffer(command.buffer)
        tensor = entry["tensor"]
        kind = "bool" if tensor.dtype == torch.bool else "float"
        if kind == "float" and not tensor.is_floating_point():
            kind = "int"
        value = POISON[entry["role"]][kind][command.which]
        if tensor.dtype == torch.uint8 and value < 0:
            value = 249 + command.which
        tensor.fill_(value)
        took = torch.equal(
            stored(tensor).nan_to_num(nan=-1.5),
            torch.full(tensor.shape, value, dtype=tensor.dtype).nan_to_num(nan=-1.5),
        )
        if not took:
            raise MalformedError(f"buffer {command.buffer!r} did not keep what was written to it")
        return {"buffer": command.buffer, "which": command.which}

    def observe(self, command: Observe) -> dict[str, Any]:
        """Store a buffer as it is now; one that need not be there may be absent."""
        if not command.must and command.buffer not in self.subject.buffers():
            return {"buffer": command.buffer, "absent": True}
        entry = self.buffer(command.buffer)
        return {
            "buffer": command.buffer,
            "role": entry["role"],
            "pad": entry["pad"],
            "rows": bool(entry["rows"]),
            "address": entry["tensor"].data_ptr(),
            "content": stored(entry["tensor"]),
        }

    def reread(self, command: Reread) -> dict[str, Any]:
        """Look again at tensors that an earlier read returned."""
        outputs = self.returned[-1 - command.reads_ago]
        now = {name: stored(tensor) for name, tensor in outputs.items()}
        return {"reads_ago": command.reads_ago, "outputs": now}

    def accept(self, command: Accept) -> dict[str, Any]:
        """Accept the block read last, and store target, commit and what became of the noise."""
        target = self.target(command.target)
        anchor = self.plan.inputs[self.read_last]["anchor"].to(self.plan.setting["device"])
        candidates = torch.cat([anchor.unsqueeze(1), self.returned[-1]["tokens"]], 1)
        placed = {name: target[name].clone() for name in ("top_p", "verify_len", "prefix_len")}
        placed["target_logits"] = target["table"][candidates]
        noise = self.noise()
        commit = self.subject.accept({**placed, "rule": command.rule})
        event = self.around_coins(noise, candidates)
        check_fields("accept()", commit, COMMIT, set(COMMIT), self.plan.setting, len(candidates))
        copies = {name: stored(tensor) for name, tensor in commit.items()}
        named = {"inputs": self.read_last, "target": command.target, "rule": command.rule}
        return {**named, "commit": copies, **event}

    def target(self, name: str) -> Tensors:
        """The named target on the subject's device; placed once, since its table may be large."""
        if name not in self.targets:
            self.targets[name] = self.place(name)
        return self.targets[name]

    def around_coins(self, before: dict[str, Any], candidates: torch.Tensor) -> dict[str, Any]:
        """The noise state on both sides of an accept, and whether coins moved it as they must."""
        after = self.noise()
        event: dict[str, Any] = {"before": {"noise": before}, "after": {"noise": after}}
        if before.get("dialect") == "race":
            end = after_coins(before["generator"], self.plan.setting["device"], *candidates.shape)
            event["state_as_declared"] = torch.equal(end.cpu(), after["generator"])
        return event

    def ask(self, command: Ask) -> dict[str, Any]:
        """Ask the subject's gate."""
        answer = self.subject.gate(dict(command.facts))
        return {"facts": dict(command.facts), "answer": dict(answer)}
