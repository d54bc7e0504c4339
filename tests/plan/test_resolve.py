"""Status of every step, from keys alone."""

from __future__ import annotations

from cuvil_build.plan.dag import Dag
from cuvil_build.plan.ingredients import complete, key_of
from cuvil_build.plan.node import Node, Source
from cuvil_build.plan.resolve import Knowledge, Status, resolve
from cuvil_build.steps.artifact import Action, Artifact, FileEntry


def node(step: str, *reads: str, member: str = "", **static: object) -> Node:
    inputs = {f"in{index}": Source(read, "out", member) for index, read in enumerate(reads)}
    return Node(step, "k", "m:f", {"out": step}, {"kind": "k", **static}, inputs)


def made(digest: str) -> Action:
    return Action({"out": Artifact({"": FileEntry(digest, 1)}, folder=False)})


def knowledge(store: dict[str, Action], unusable: frozenset[str] = frozenset()) -> Knowledge:
    return Knowledge(store.get, lambda node, _key, _action: node.id not in unusable, lambda _: None)


A, B, C = node("a"), node("b", "a"), node("c", "b")
DAG = Dag([A, B, C])
KEY_A = key_of(complete(A.static, {}))
KEY_B = key_of(complete(B.static, {"in0": "1"}))
KEY_C = key_of(complete(C.static, {"in0": "2"}))
WARM = {KEY_A: made("1"), KEY_B: made("2"), KEY_C: made("3")}


def statuses(store: dict[str, Action], **more: frozenset[str]) -> list[Status]:
    return [r.status for r in resolve(DAG, knowledge(store, **more)).values()]


def test_a_warm_store_knows_everything_and_a_cold_one_runs_the_first() -> None:
    assert statuses(WARM) == [Status.KNOWN] * 3
    assert statuses({}) == [Status.RUN, Status.MAY_RUN, Status.MAY_RUN]


def test_keys_use_digests_of_outputs() -> None:
    assert statuses({**WARM, KEY_A: made("other")}) == [Status.KNOWN, Status.RUN, Status.MAY_RUN]


def test_outputs_that_cannot_be_had_make_a_step_run() -> None:
    assert statuses(WARM, unusable=frozenset({"b"})) == [Status.KNOWN, Status.RUN, Status.MAY_RUN]


def test_forced_steps_run() -> None:
    resolved = resolve(DAG, knowledge(WARM), {"a", "b", "c"})
    assert [r.status for r in resolved.values()] == [Status.RUN, Status.MAY_RUN, Status.MAY_RUN]
    assert resolved["a"].reason == "forced"


def test_only_the_member_that_is_read_counts() -> None:
    def folder(other: str) -> Action:
        return Action({"out": Artifact({"x": FileEntry("1", 1), "y": FileEntry(other, 1)}, folder=True)})

    dag = Dag([A, node("b", "a", member="x")])
    keys = {resolve(dag, knowledge({KEY_A: folder(other)}))["b"].key for other in ("2", "3")}
    assert len(keys) == 1


def test_the_reason_is_the_first_difference() -> None:
    before = {"kind": "k", "params": {"level": 1}, "code": "x", "inputs": {}}
    dag = Dag([node("a", params={"level": 2}, code="y")])
    know = Knowledge(lambda _: None, lambda *_: True, lambda _: before)
    assert resolve(dag, know)["a"].reason == "params.level changed: 1 -> 2 (and 1 more)"


def test_a_lost_output_has_its_own_reason() -> None:
    know = Knowledge(lambda _: None, lambda *_: True, lambda _: complete(A.static, {}))
    assert resolve(Dag([A]), know)["a"].reason == "its outputs are gone, and the store does not have them"
