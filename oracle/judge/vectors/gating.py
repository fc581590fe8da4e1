"""Fold or eager: every question that the judge puts to a gate, with its answer."""

from typing import Any

from ..checks.gates import TABLES, questions
from .form import Entry, case, group

OPERATIONS = {
    f"gate_{table}": f"the {table} table of the README on facts by name: the first row that "
    "applies decides; fold is eager, greedy or sampled"
    for table in TABLES
}


def asked(table: str, family: str) -> list[Entry]:
    """Every question to one table, in order."""
    cases: list[Entry] = []
    for facts in questions(family):
        if facts["table"] == table:
            fold, reason = TABLES[table](facts)
            inputs: dict[str, Any] = {key: facts[key] for key in facts if key != "table"}
            name = f"{table}-{family}-{len(cases):02d}"
            cases.append(case(name, inputs, {"fold": fold, "reason": reason}))
    return cases


def groups() -> list[Entry]:
    """One group a table; build asks for each family."""
    build = "a gate folds what it must not, stays closed for ever, or closes for another reason"
    memory = ["vllm-project/vllm#9995", "sgl-project/sglang#35579", "sgl-project/sglang#35288"]
    return [
        group(
            "build-dflash",
            "gate_build",
            ["L06", "L12", "K01"],
            build,
            memory,
            asked("build", "dflash"),
        ),
        group(
            "build-dspark",
            "gate_build",
            ["L06", "L12", "K01"],
            build,
            memory,
            asked("build", "dspark"),
        ),
        group(
            "step",
            "gate_step",
            ["L02", "D16"],
            "a recording that did not run, or samples nothing, is believed for sampled rows",
            ["vllm-project/vllm#47460", "pegainfer-project/pegainfer#442"],
            asked("step", "dspark"),
        ),
        group(
            "accept",
            "gate_accept",
            ["E20"],
            "a commit computed before penalties or a grammar is believed",
            ["vllm-project/vllm#19482", "vllm-project/vllm#42744"],
            asked("accept", "dspark"),
        ),
    ]
