"""Puts the files of a module together and says in the manifest what is true of them."""

from __future__ import annotations

import json
import shutil

from cuvil_build import __version__
from cuvil_build.bundle.call_table import FILE_NAME as CALLS
from cuvil_build.bundle.call_table import call_table
from cuvil_build.bundle.manifest import ModuleFacts, build_manifest, write_manifest
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.module_folder import (
    WEIGHTS,
    member_libraries,
    tensor_entries,
    write_javascript,
)
from cuvil_build.target.descriptor import Target
from cuvil_build.target.members import library_name
from cuvil_build.toolchain.find import find_toolchain


def run(job: Job) -> None:
    target = Target.model_validate(job.params["target"])
    folder = job.outputs["module"]
    facts = json.loads((job.inputs["sources"] / "module.json").read_text())
    report = json.loads(job.inputs["report"].read_text())
    files = {
        "golden.safetensors": job.inputs["golden"],
        f"{facts['model']}.h": job.inputs["sources"] / f"{facts['model']}.h",
        "reports/verify.json": job.inputs["report"],
        "reports/memory.json": job.inputs["memory"],
    }
    if "quantized" in job.inputs:
        files["quantized.onnx"] = job.inputs["quantized"]
    if "search" in job.inputs and job.inputs["search"].stat().st_size:
        files["reports/search.jsonl"] = job.inputs["search"]
    if not facts["embedded"]:
        files[WEIGHTS] = job.inputs["weights"]
    files |= {path.name: path for path in sorted(job.inputs["module"].iterdir())}
    for name, path in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(path, folder / name)
    schedules = json.loads(job.inputs["schedules"].read_text())
    calls = json.dumps(call_table(facts["order"], schedules), indent=1) + "\n"
    (folder / CALLS).write_text(calls)
    names = sorted([*files, CALLS])
    if target.runner == "wasm":
        names += write_javascript(folder, facts, target)
    toolchain = find_toolchain(str(job.params["toolchain"]))
    write_manifest(
        folder,
        build_manifest(
            folder,
            ModuleFacts(
                model=facts["model"],
                project=str(job.params["project"]),
                project_model=str(job.params["model"]),
                source_digest=facts["digest"],
                precision=str(job.params["precision"]),
                target=target.name,
                triple=target.triple,
                features=tuple(facts["features"]),
                tier=report["tier"],
                library=library_name(target),
                libraries=member_libraries(facts, target),
                weights=None if facts["embedded"] else WEIGHTS,
                embedded_bytes=facts["weights_bytes"] if facts["embedded"] else 0,
                inputs=tensor_entries(facts["inputs"]),
                outputs=tensor_entries(facts["outputs"]),
                arena_bytes=facts["arena_bytes"],
                tools={"cuvil": __version__, toolchain.family: toolchain.version},
                verification={k: v for k, v in report.items() if k not in ("tier", "reason")},
                reason=report["reason"],
            ),
            sorted(names),
        ),
    )
