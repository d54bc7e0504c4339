"""A process of its own: compiles an ONNX model with IREE for this machine's CPU.

python -m cuvil_build.measure.compile_iree MODEL.onnx MODULE.vmfb

Beside the module it writes the names of the model's inputs and outputs, which IREE forgets. A process, so
that the memory of whoever times the module stays free of the compiler's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx

FLAGS = ("--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3")


def compile_model(model: Path, module: Path) -> None:
    import iree.compiler

    graph = onnx.load(model, load_external_data=False).graph
    inner = {tensor.name for tensor in graph.initializer}
    names = {
        "inputs": [value.name for value in graph.input if value.name not in inner],
        "outputs": [value.name for value in graph.output],
    }
    module.with_suffix(".json").write_text(json.dumps(names), encoding="utf-8")
    text = module.with_suffix(".mlir")
    importer = [sys.executable, "-m", "iree.compiler.tools.import_onnx", str(model), "-o", str(text)]
    subprocess.run(importer, check=True)
    iree.compiler.compile_file(
        str(text),
        input_type="onnx",
        target_backends=["llvm-cpu"],
        extra_args=list(FLAGS),
        output_file=str(module),
    )


if __name__ == "__main__":
    compile_model(Path(sys.argv[1]), Path(sys.argv[2]))
