"""Step `fuse` on a graph file, as the build runs it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from cuvil_build.bundle.golden import GoldenCase, write_golden
from cuvil_build.cuir.locations import source_nodes
from cuvil_build.cuir.text import parse_model
from cuvil_build.cuir.weights import load_graph, save_graph
from cuvil_build.errors import VerificationFailed
from cuvil_build.ops.infer import infer_model
from cuvil_build.paths import find_yaml
from cuvil_build.reference import run_reference
from cuvil_build.samples import random_samples
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.fuse import run
from tests.conftest import input_spec
