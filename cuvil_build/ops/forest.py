"""Decision trees as tables: what the three tree operators of ai.onnx.ml have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_build.errors import InvalidModel, UnsupportedAttribute

Array = NDArray[Any]

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
MEMBER = MODES.index("BRANCH_MEMBER")


@dataclass(frozen=True, slots=True)
class Leaves:
    """What each leaf adds to which target, leaf by leaf."""

    counts: Array
    """How many weights each leaf has."""
    targets: Array
    weights: Array

    def chosen(self, leaves: Array) -> Leaves:
        """Some of the leaves, in this order."""
        starts = _offsets(self.counts)
        counts = self.counts[leaves]
        first = np.repeat(starts[leaves] - _offsets(counts)[:-1], counts)
        at = first + np.arange(len(first))
        return Leaves(counts, self.targets[at], self.weights[at])


@dataclass(frozen=True, slots=True)
class Splits:
    """Trees as their attributes have them: children are numbers of splits, or of leaves as -1 - number."""

    roots: Sequence[int]
    features: Array
    thresholds: Array
    modes: Array
    missing: Array
    """Whether a NaN goes the true way."""
    true: Array
    false: Array
    members: Mapping[int, Array]
    """Sets of numbers of the splits that have one."""
    leaves: Leaves


@dataclass(frozen=True, slots=True)
class Forest:
    """Splits and leaves in one list, each split before all that is below it, its true side first."""

    roots: Array
    features: Array
    """Of each split; -1: a leaf."""
    values: Array
    """Thresholds; of a leaf its weight, where every leaf has one."""
    other: Array
    """Where the false side starts; of a leaf its target, where every leaf has one, else its number."""
    modes: Array
    missing: Array
    member_starts: Array
    """Of each entry, and the end of the last: its part of `members`."""
    members: Array
    leaf_starts: Array
    """Of each leaf, and the end of the last: its part of targets and weights."""
    targets: Array
    weights: Array

    @property
    def is_simple(self) -> bool:
        """Whether every leaf has one weight, which then stands in `values`."""
        return bool(np.all(np.diff(self.leaf_starts) == 1))

    @property
    def widest(self) -> int:
        """The number of features that are read."""
        return int(self.features.max(initial=-1)) + 1


def packed(splits: Splits, dtype: np.dtype[Any]) -> Forest:
    """Raises InvalidModel where a split is reached twice or not there."""
    if splits.features.min(initial=0) < 0:
        raise InvalidModel("a split reads a negative feature")
    roots, order, other = _ordered(splits)
    places = np.array(order, np.int64)
    is_leaf = places < 0
    inner, leaves = places[~is_leaf], splits.leaves.chosen(-1 - places[is_leaf])
    simple = bool((leaves.counts == 1).all())
    features = np.full(len(order), -1, np.int32)
    values, modes = np.zeros(len(order), dtype), np.zeros(len(order), np.uint8)
    missing = np.zeros(len(order), np.uint8)
    features[~is_leaf], values[~is_leaf] = splits.features[inner], splits.thresholds[inner]
    modes[~is_leaf], missing[~is_leaf] = splits.modes[inner], splits.missing[inner]
    ends = np.array(other, np.int32)
    ends[is_leaf] = leaves.targets if simple else np.arange(len(leaves.counts))
    if simple:
        values[is_leaf] = leaves.weights
    sets = [splits.members.get(at, _EMPTY) for at in order] if splits.members else [_EMPTY] * len(order)
    return Forest(
        np.array(roots, np.int32),
        features,
        values,
        ends,
        modes,
        missing,
        _offsets(np.array([len(s) for s in sets], np.int64)),
        np.concatenate([_EMPTY, *(sets if splits.members else ())]).astype(dtype),
        _offsets(leaves.counts),
        leaves.targets.astype(np.int32),
        leaves.weights.astype(dtype),
    )


def _ordered(splits: Splits) -> tuple[list[int], list[int], list[int]]:
    """Where trees start, children in order of the list, and where the false side of each split starts."""
    roots: list[int] = []
    order: list[int] = []
    other: list[int] = []
    seen: set[int] = set()
    for root in splits.roots:
        roots.append(len(order))
        pending = [(int(root), -1)]
        while pending:
            at, parent = pending.pop()
            if parent >= 0:
                other[parent] = len(order)
            if at in seen and at >= 0:
                raise InvalidModel(f"a tree reaches its node {at} twice")
            if not -len(splits.leaves.counts) <= at < len(splits.features):
                raise InvalidModel(f"a tree has no node {at}")
            seen.add(at)
            order.append(at)
            other.append(0)
            if at >= 0:
                pending += [(int(splits.false[at]), len(order) - 1), (int(splits.true[at]), -1)]
    return roots, order, other


_EMPTY = np.zeros(0)


def _offsets(counts: Array) -> Array:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


# Attributes ---------------------------------------------------------------------------------------


def splits_of_ensemble(
    *,
    leaf_targetids: Sequence[int],
    leaf_weights: Array,
    nodes_falseleafs: Sequence[int],
    nodes_falsenodeids: Sequence[int],
    nodes_featureids: Sequence[int],
    nodes_modes: Array,
    nodes_splits: Array,
    nodes_trueleafs: Sequence[int],
    nodes_truenodeids: Sequence[int],
    tree_roots: Sequence[int],
    membership_values: Array | None = None,
    nodes_hitrates: Array | None = None,
    nodes_missing_value_tracks_true: Sequence[int] = (),
) -> Splits:
    """Of TreeEnsemble: one weight for each leaf."""
    count = len(nodes_featureids)
    lists = (nodes_falseleafs, nodes_falsenodeids, nodes_trueleafs, nodes_truenodeids)
    lengths = {count, *(len(v) for v in lists), nodes_modes.size, nodes_splits.size}
    if len(lengths) > 1 or len(leaf_targetids) != leaf_weights.size:
        raise InvalidModel("TreeEnsemble's lists of nodes or leaves differ in length")

    def children(ids: Sequence[int], are_leaves: Sequence[int]) -> Array:
        numbers = np.array(ids, np.int64)
        return np.where(np.array(are_leaves, bool), -1 - numbers, numbers)

    modes = np.asarray(nodes_modes, np.uint8)
    leaf_targets = np.array(leaf_targetids, np.int64)
    leaves = Leaves(np.ones(len(leaf_targets), np.int64), leaf_targets, leaf_weights.reshape(-1))
    true = children(nodes_truenodeids, nodes_trueleafs)
    return Splits(
        tree_roots,
        np.array(nodes_featureids, np.int32),
        nodes_splits.reshape(-1),
        modes,
        _flags(nodes_missing_value_tracks_true, count),
        true,
        children(nodes_falsenodeids, nodes_falseleafs),
        _members(modes, membership_values),
        leaves,
    )


def _members(modes: Array, values: Array | None) -> dict[int, Array]:
    """Sets are one after the other, each ends with a NaN."""
    flat = np.zeros(0) if values is None else np.asarray(values).reshape(-1)
    found: dict[int, Array] = {}
    start = 0
    for node in np.flatnonzero(modes == MEMBER):
        ends = np.flatnonzero(np.isnan(flat[start:]))
        if not len(ends):
            raise InvalidModel("membership_values has fewer sets than there are nodes that need one")
        found[int(node)] = flat[start : start + ends[0]]
        start += int(ends[0]) + 1
    return found


def splits_of_nodes(weights: Mapping[tuple[int, int], Sequence[tuple[int, float]]], **nodes: Any) -> Splits:
    """Of the older operators; `weights` are those of each leaf (tree, node)."""
    _require_same_length(nodes)
    keys = list(zip(nodes["nodes_treeids"], nodes["nodes_nodeids"]))
    names = list(nodes["nodes_modes"])
    unknown = sorted(set(names) - {*MODES[:MEMBER], "LEAF"})
    if unknown:
        raise UnsupportedAttribute(f"nodes_modes '{unknown[0]}' is not supported")
    number: dict[tuple[int, int], int] = {}
    splits = [n for n, name in enumerate(names) if name != "LEAF"]
    leaves = [n for n, name in enumerate(names) if name == "LEAF"]
    for position, n in enumerate(splits):
        number[keys[n]] = position
    for position, n in enumerate(leaves):
        number[keys[n]] = -1 - position

    def children(name: str) -> Array:
        try:
            return np.array([number[keys[n][0], nodes[name][n]] for n in splits], np.int64)
        except KeyError as error:
            raise InvalidModel(f"{name} names the node {error.args[0]}, which is not there") from None

    true, false = children("nodes_truenodeids"), children("nodes_falsenodeids")
    below = {*true.tolist(), *false.tolist()}
    roots = {keys[n][0]: number[keys[n]] for n in reversed(range(len(keys))) if number[keys[n]] not in below}
    rootless = sorted({tree for tree, _ in keys} - roots.keys())
    if rootless:
        raise InvalidModel(f"every node of tree {rootless[0]} is below another")
    pick = np.array(splits, np.int64)
    tensor = nodes.get("nodes_values_as_tensor")
    values = np.asarray(nodes.get("nodes_values", ()) if tensor is None else tensor)
    return Splits(
        [root for _, root in sorted(roots.items())],
        np.array(nodes["nodes_featureids"], np.int32)[pick],
        values.reshape(-1)[pick],
        np.array([MODES.index(names[n]) for n in splits], np.uint8),
        _flags(nodes.get("nodes_missing_value_tracks_true", ()), len(keys))[pick],
        true,
        false,
        {},
        _leaves([weights.get(keys[n], ()) for n in leaves]),
    )


def _leaves(pairs: Sequence[Sequence[tuple[int, float]]]) -> Leaves:
    flat = [pair for own in pairs for pair in own]
    return Leaves(
        np.array([len(own) for own in pairs], np.int64),
        np.array([target for target, _ in flat], np.int64),
        np.array([weight for _, weight in flat], np.float64),
    )


def weights_of(
    trees: Sequence[int], nodes: Sequence[int], targets: Sequence[int], weights: Array
) -> dict[tuple[int, int], list[tuple[int, float]]]:
    """Of each leaf, in the order of the attributes."""
    found: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for tree, node, target, weight in zip(trees, nodes, targets, weights.reshape(-1)):
        found.setdefault((tree, node), []).append((int(target), float(weight)))
    return found


_REQUIRED = ("treeids", "nodeids", "featureids", "modes", "truenodeids", "falsenodeids")


def _require_same_length(nodes: Mapping[str, Any]) -> None:
    missing = [f"nodes_{part}" for part in _REQUIRED if f"nodes_{part}" not in nodes]
    if missing:
        raise InvalidModel(f"a tree operator without {missing[0]}")
    tensor = nodes.get("nodes_values_as_tensor")
    values = nodes.get("nodes_values", ()) if tensor is None else tensor
    lengths = {name: len(nodes[name]) for name in (f"nodes_{part}" for part in _REQUIRED)}
    lengths["nodes_values"] = np.asarray(values).size
    lengths |= {n: len(v) for n, v in nodes.items() if n == "nodes_missing_value_tracks_true" and len(v)}
    if len(set(lengths.values())) > 1:
        text = ", ".join(f"{name} has {count}" for name, count in lengths.items())
        raise InvalidModel(f"a tree operator's lists differ in length: {text}")


def _flags(values: Sequence[int], count: int) -> Array:
    return np.array(values, np.uint8) if len(values) else np.zeros(count, np.uint8)
