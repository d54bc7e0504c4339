"""A whole pipeline of plain functions on text, with the shape of the real one: for tests of the machinery.

The model is a text file: `bias N` and lines `kernel NAME BODY`. Its steps are declared as the real ones are.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from cuvil_build.errors import InvalidModel, VerificationFailed
from cuvil_build.steps.step import From, Job, StepContext, StepKind


def model_file(context: StepContext) -> dict[str, Path]:
    source = context.project.models[context.variant.model].source
    return {"source": context.root / source.path}  # type: ignore[union-attr]


def fetch(job: Job) -> None:
    text = job.inputs["source"].read_text()
    if "slow" in text:
        time.sleep(3 if "slower" in text else 0.2)
    if "crash" in text:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "bug" in text:
        raise ZeroDivisionError("one of ours")
    job.outputs["source"].write_text(text)


def import_model(job: Job) -> None:
    """Comments go, so that an edit of one stops here; the `bias` line becomes a blob that the graph names."""
    lines = job.inputs["source"].read_text().splitlines()
    kept = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    bad = [
        line for line in kept if line.split()[0] not in ("bias", "kernel", "slow", "forget", "same", "wrong")
    ]
    if bad:
        raise InvalidModel(f"'{bad[0]}' is no kernel", hint="as in 'kernel NAME BODY'")
    job.log(f"{len(kept)} lines")
    bias = next((line for line in kept if line.startswith("bias")), "bias 0")
    digest = job.blobs.put(bias.encode())
    graph = {"kernels": [line for line in kept if line.startswith("kernel")], "bias": digest}
    graph["flags"] = [word for line in kept for word in line.split() if word in ("forget", "wrong", "slow")]
    if "forget" not in graph["flags"]:
        job.outputs["graph"].write_text(json.dumps(graph))
    job.outputs["report"].write_text("{}")


def fuse(job: Job) -> None:
    graph = json.loads(job.inputs["graph"].read_text())
    graph["precision"] = job.params["precision"]
    job.outputs["graph"].write_text(json.dumps(graph))
    job.outputs["decisions"].write_text("")


def codegen(job: Job) -> None:
    graph = json.loads(job.inputs["graph"].read_text())
    out = job.outputs["sources"]
    (out / "kernels").mkdir()
    (out / "common.h").write_text("/* common */\n")
    units = []
    for line in graph["kernels"]:
        _, name, body = line.split(" ", 2)
        (out / "kernels" / f"{name}.c").write_text(f"{body}\n")
        units.append({"name": f"{name}.c", "path": f"kernels/{name}.c", "headers": ["common.h"], "flags": []})
    (out / "units.json").write_text(json.dumps(units))
    bias = bytes(job.blobs.open(graph["bias"]))
    job.outputs["weights"].write_bytes(bias + b"\0" * (2 << 20))


def compile_unit(job: Job) -> None:
    job.many("headers")["common.h"].read_text()
    if "slow" in job.inputs["source"].read_text():
        time.sleep(0.3)
    job.outputs["object"].write_text(f"{job.params['triple']}: {job.inputs['source'].read_text()}")


def link(job: Job) -> None:
    objects = job.many("objects")
    job.outputs["library"].write_text("".join(f"{name}={path.read_text()}" for name, path in objects.items()))
    job.outputs["library"].chmod(0o755)


def verify(job: Job) -> None:
    if "wrong" in json.loads(job.inputs["graph"].read_text())["flags"]:
        raise VerificationFailed("the module gives other numbers than the model")
    job.outputs["report"].write_text(json.dumps({"size": len(job.inputs["library"].read_text())}))


def bundle(job: Job) -> None:
    out = job.outputs["module"]
    (out / "module.so").write_bytes(job.inputs["library"].read_bytes())
    (out / "module.so").chmod(0o755)
    (out / "weights.bin").write_bytes(job.inputs["weights"].read_bytes())
    (out / "reports").mkdir()
    (out / "reports" / "verify.json").write_bytes(job.inputs["report"].read_bytes())
    (out / "manifest.json").write_text(json.dumps({"variant": job.params["variant"]}))


def _limits(context: StepContext) -> dict[str, object]:
    return {"wasm": context.target.triple.startswith("wasm")}


NAME = "tests.toy_steps"
CODE = ("steps/step.py",)

KINDS = {
    kind.name: kind
    for kind in (
        StepKind(
            name="fetch",
            worker=f"{NAME}:fetch",
            scope="model",
            phase=1,
            inputs={},
            outputs={"source": "source.txt"},
            files=model_file,
            code=CODE,
        ),
        StepKind(
            name="import_model",
            worker=f"{NAME}:import_model",
            scope="model",
            phase=1,
            inputs={"source": From("fetch", "source")},
            outputs={"graph": "graph.json", "report": "import.json"},
            code=CODE,
            pool="memory",
        ),
        StepKind(
            name="fuse",
            worker=f"{NAME}:fuse",
            scope="precision",
            phase=1,
            inputs={"graph": From("import_model", "graph")},
            outputs={"graph": "fused.json", "decisions": "decisions.jsonl"},
            params=lambda c: {"precision": c.variant.precision, **_limits(c)},
            group=_limits,
            code=CODE,
        ),
        StepKind(
            name="codegen",
            worker=f"{NAME}:codegen",
            scope="variant",
            phase=1,
            inputs={"graph": From(("quantize", "fuse"), "graph")},
            outputs={"sources": "src/", "weights": "weights.bin"},
            params=lambda c: {"target": c.target.name},
            sealed=True,
            code=CODE,
        ),
        StepKind(
            name="compile",
            worker=f"{NAME}:compile_unit",
            scope="unit",
            phase=2,
            inputs={"sources": From("codegen", "sources")},
            outputs={"object": "object.o"},
            params=lambda c: {
                "triple": c.target.triple.split("-")[0],
                "flags": list(c.unit.flags if c.unit else ()),
            },
            tools=lambda _: {"cc": "toy 1"},
            sealed=True,
            code=(),
        ),
        StepKind(
            name="link",
            worker=f"{NAME}:link",
            scope="variant",
            phase=2,
            inputs={"objects": From("compile", "object", many=True)},
            outputs={"library": "module.so"},
            env=("TOY_LINK",),
            sealed=True,
            code=(),
        ),
        StepKind(
            name="verify",
            worker=f"{NAME}:verify",
            scope="variant",
            phase=2,
            inputs={"library": From("link", "library"), "graph": From("import_model", "graph")},
            outputs={"report": "verify.json"},
            sealed=True,
            code=CODE,
        ),
        StepKind(
            name="bundle",
            worker=f"{NAME}:bundle",
            scope="variant",
            phase=2,
            inputs={
                "library": From("link", "library"),
                "weights": From("codegen", "weights"),
                "report": From("verify", "report"),
            },
            outputs={"module": "./"},
            params=lambda c: {"variant": c.variant.id},
            delivers=True,
            sealed=True,
            code=CODE,
        ),
    )
}
