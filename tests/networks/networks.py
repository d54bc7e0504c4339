"""The reference networks by name, what cuvil.yaml says of their dims, and two sets of inputs for each.

python -m tests.networks.networks --to FOLDER [NAME ...]    writes ONNX files
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray

from tests.networks.language import bert, bert_ffn
from tests.networks.vision import mobilenet, resnet

Feeds: TypeAlias = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Network:
    """One model. `feeds` makes its inputs from a generator and, where they are free, sizes by dim."""

    name: str
    write: Callable[[], onnx.ModelProto]
    feeds: Callable[[np.random.Generator, Mapping[str, int]], Feeds]
    sizes: Sequence[Mapping[str, int]] = ({}, {})
    """Of the free dims, case by case."""
    dims: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """As in cuvil.yaml."""

    def cases(self) -> list[Feeds]:
        return [self.case(number, sizes) for number, sizes in enumerate(self.sizes)]

    def case(self, number: int, sizes: Mapping[str, int]) -> Feeds:
        return self.feeds(np.random.default_rng([zlib.crc32(self.name.encode()), number]), sizes)


def _images(side: int) -> Callable[[np.random.Generator, Mapping[str, int]], Feeds]:
    def feeds(random: np.random.Generator, sizes: Mapping[str, int]) -> Feeds:
        return {"input": random.standard_normal((sizes.get("batch", 1), 3, side, side), np.float32)}

    return feeds


def _ids(vocabulary: int, seq: int) -> Callable[[np.random.Generator, Mapping[str, int]], Feeds]:
    def feeds(random: np.random.Generator, sizes: Mapping[str, int]) -> Feeds:
        return {"input_ids": random.integers(0, vocabulary, (sizes.get("batch", 1), sizes.get("seq", seq)))}

    return feeds


def _rows(width: int, seq: int) -> Callable[[np.random.Generator, Mapping[str, int]], Feeds]:
    def feeds(random: np.random.Generator, sizes: Mapping[str, int]) -> Feeds:
        return {
            "x": random.standard_normal((sizes.get("batch", 1), sizes.get("seq", seq), width), np.float32)
        }

    return feeds


FULL = (
    Network("resnet50", partial(resnet, "resnet50"), _images(224)),
    Network("mobilenet_v2", partial(mobilenet, "mobilenet_v2"), _images(224)),
    Network("bert_ffn", partial(bert_ffn, "bert_ffn"), _rows(768, 128)),
    Network("bert_base", partial(bert, "bert_base"), _ids(30522, 128)),
)
"""At their published sizes."""

_BATCH = {"batch": {"min": 1, "max": 4}}
_BATCH_SEQ = {"batch": {"min": 1, "max": 3}, "seq": {"min": 1, "max": 67}}
_TWO_BATCHES = ({"batch": 1}, {"batch": 3})
_TWO_LENGTHS = ({"batch": 1, "seq": 32}, {"batch": 2, "seq": 17})

SMALL = (
    Network(
        "resnet_small",
        partial(resnet, "resnet_small", blocks=(1, 1, 1, 1), stem=8, classes=10, side=64, batch="batch"),
        _images(64),
        _TWO_BATCHES,
        _BATCH,
    ),
    Network(
        "mobilenet_small",
        partial(
            mobilenet,
            "mobilenet_small",
            stages=((1, 8, 1, 1), (6, 12, 2, 2), (6, 20, 2, 2)),
            stem=8,
            last=48,
            classes=10,
            side=64,
            batch="batch",
        ),
        _images(64),
        _TWO_BATCHES,
        _BATCH,
    ),
    Network(
        "bert_ffn_small",
        partial(bert_ffn, "bert_ffn_small", width=48, inner=192, batch="batch", seq="seq"),
        _rows(48, 32),
        _TWO_LENGTHS,
        _BATCH_SEQ,
    ),
    Network(
        "bert_small",
        partial(
            bert,
            "bert_small",
            layers=2,
            width=64,
            heads=4,
            inner=256,
            vocabulary=200,
            batch="batch",
            seq="seq",
        ),
        _ids(200, 32),
        _TWO_LENGTHS,
        _BATCH_SEQ,
    ),
    Network(
        "bert_static",
        partial(
            bert,
            "bert_static",
            layers=2,
            width=64,
            heads=4,
            inner=256,
            vocabulary=200,
            seq=32,
            positions=32,
        ),
        _ids(200, 32),
    ),
)
"""The same builds, small enough for an emulator; most with free dims."""

NETWORKS = {network.name: network for network in (*FULL, *SMALL)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*NETWORKS, []], help="all without one")
    parser.add_argument("--to", type=Path, required=True, help="folder to write to")
    arguments = parser.parse_args()
    arguments.to.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or NETWORKS:
        onnx.save(NETWORKS[name].write(), arguments.to / f"{name}.onnx")


if __name__ == "__main__":
    main()
