"""A project with a precision policy, built up to its steps."""

from __future__ import annotations

import os
from pathlib import Path

from cuvil_build.api import BuildResult, Options, Project

CONFIG = """\
version: 1
project: quant
models:
  net: {source: net.onnx, dims: {batch: {min: 1, max: 8, typical: [3]}}}
precision:
  fp32: {}
  int8:
    weights: int8
    activations: {type: uint8, calibrate: {data: calib/*.npz, samples: 8}}
    keep: {float32: ["name:nobody*"]}
targets: {x64: {use: x86_64}, avx: {use: x86_64-avx2}}
"""


def project(root: Path, config: str = CONFIG) -> Project:
    (root / "cuvil.yaml").write_text(config)
    return Project.load(root, environ=dict(os.environ))


def build(root: Path, config: str = CONFIG, until: str = "quantized_reference") -> BuildResult:
    return project(root, config).build(["precision:int8"], until=until, options=Options(jobs=1))
