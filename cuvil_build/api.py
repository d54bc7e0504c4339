"""A project as programs use it: load, plan, build. What happens is told to a listener; nothing is printed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cuvil_build import catalog, paths
from cuvil_build.config.files import check_files
from cuvil_build.config.layers import ENV_PREFIX
from cuvil_build.config.load import CONFIG_NAME, LoadedProject, load_project
from cuvil_build.config.matrix import Variant, variants
from cuvil_build.config.precision import calibration_path, function_path, is_function
from cuvil_build.config.project import Project as Config
from cuvil_build.errors import NotYet
from cuvil_build.execute.build import Builder, BuildResult, Options
from cuvil_build.execute.events import Listener, ignore
from cuvil_build.execute.planner import Plan, Planner
from cuvil_build.execute.records import Layout, read_record
from cuvil_build.plan import state
from cuvil_build.plan.ingredients import FileDigests
from cuvil_build.plan.pipeline import Pipeline
from cuvil_build.plan.selectors import names_steps, select_steps, select_variants
from cuvil_build.steps.fuse import DEFAULT
from cuvil_build.steps.step import StepContext, StepKind
from cuvil_build.store.local import LocalStore, store_folder
from cuvil_build.store.overlay import open_store
from cuvil_build.target.descriptor import Target
from cuvil_build.target.members import load_members
from cuvil_build.toolchain.find import watch_toolchain

STEPS = "cuvil_build.steps"


@dataclass(frozen=True, slots=True)
class Selection:
    """What selectors chose of a plan."""

    plan: Plan
    steps: frozenset[str]


@dataclass(frozen=True, slots=True)
class Project:
    """One cuvil.yaml, loaded, with the steps that this version knows."""

    loaded: LoadedProject
    root: Path
    variants: tuple[Variant, ...]
    kinds: Mapping[str, StepKind]
    environ: Mapping[str, str]

    @staticmethod
    def load(
        directory: Path | str = ".",
        *,
        file: Path | str | None = None,
        profile: str | None = None,
        sets: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        kinds: Mapping[str, StepKind] | None = None,
    ) -> Project:
        """Load and check the config; `kinds` are the steps of `cuvil_build.steps` unless given."""
        environ = dict(os.environ) if environ is None else environ
        path = Path(directory) / (file or CONFIG_NAME)
        loaded = load_project(path, profile=profile, sets=list(sets), environ=environ)
        known = catalog.discover(STEPS, "STEP") if kinds is None else dict(kinds)
        root = Path(directory).resolve()
        _check_lists(loaded, root)
        return Project(loaded, root, variants(loaded.project), known, environ)

    @property
    def config(self) -> Config:
        return self.loaded.project

    @property
    def layout(self) -> Layout:
        return Layout(self.root)

    def store(self) -> LocalStore:
        """What builds of the past left, whatever this project's builds may do with it."""
        return LocalStore(store_folder(self.root, self.environ))

    def build_store(self) -> LocalStore:
        """The store as `cache.mode` lets a build use it. What may not be kept goes with the workspace."""
        mode, passing = self.config.cache.mode, self.layout.workspace / "store"
        if mode == "read-write":
            return self.store()
        return open_store(passing, store_folder(self.root, self.environ) if mode == "read-only" else None)

    def planner(self, chosen: Iterable[Variant] | None = None, *, until: str = "") -> Planner:
        """For all variants unless some are chosen."""
        folders = paths.search_path("targets", self.root)
        wanted = self.variants if chosen is None else tuple(chosen)
        check_files(self.loaded, self.root, (variant.model for variant in wanted))
        contexts = tuple(self._contexts(wanted, folders))
        digests = FileDigests(self.layout.cuvil / "digests.json")
        pipeline = Pipeline(self.kinds, contexts, digests, self.environ)
        return Planner(self.layout, self.build_store(), pipeline, until)

    def _contexts(self, wanted: Iterable[Variant], folders: Sequence[Path]) -> Iterator[StepContext]:
        members: dict[tuple[str, ...], tuple[Target, ...]] = {}
        for variant in wanted:
            names = (variant.target_id, *variant.also)
            if names not in members:
                members[names] = load_members(names, folders)
            first, *also = members[names]
            yield StepContext(self.root, self.config, variant, first, also=tuple(also))

    def select(self, selectors: Sequence[str] = ()) -> tuple[Variant, ...]:
        """The variants that selectors of variants choose."""
        return select_variants(selectors, self.variants, self._modified_variants)

    def plan(self, selectors: Sequence[str] = (), *, until: str = "", force: bool = False) -> Selection:
        """What a build would do. Selectors may name steps here; then the plan is the whole project's."""
        if names_steps(selectors):
            plan = self.planner(until=until).plan(force=force)
            chosen = select_steps(selectors, plan.dag, self.variants, lambda: plan.modified)
            return Selection(plan, frozenset(chosen))
        plan = self.planner(self.select(selectors), until=until).plan(force=force)
        return Selection(plan, frozenset(plan.dag.ids))

    def build(
        self,
        selectors: Sequence[str] = (),
        *,
        until: str = "",
        options: Options | None = None,
        listen: Listener = ignore,
    ) -> BuildResult:
        """Build the selected variants. Steps that fail are in the result; only mistakes made before the first
        step, and bugs of ours, are raised."""
        chosen = self.select(selectors)
        planner = self.planner(chosen, until=until)
        whole = {v.id for v in chosen} == {v.id for v in self.variants}
        return Builder(self.layout, planner, options or Options(), listen, whole).build()

    def remember(self, arguments: Sequence[str], result: BuildResult, selectors: Sequence[str] = ()) -> None:
        """Note all that the plan read and left behind, so that the same command line can see that there is
        nothing to do without loading any of this."""
        if self.config.cache.mode == "off":
            return  # which asks for every step, every time
        chosen = self.select([s for s in selectors if "state:" not in s]) if selectors else self.variants
        if not result.ok or not result.plan.is_done or any("state:" in word for word in selectors):
            return
        entries = state.read(str(self.root))
        signature = state.signature(list(arguments))
        entries.pop(signature, None)
        entries[signature] = self._state(result, [variant.id for variant in chosen])
        state.write(str(self.root), entries)

    def _state(self, result: BuildResult, chosen: list[str]) -> dict[str, object]:
        digests = FileDigests(self.layout.cuvil / "digests.json")
        package = Path(__file__).resolve().parent
        code = [p for p in package.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
        folders = {p.parent for p in code} | {package} | _site_folders()
        files = {*self.loaded.reads.files, *code}
        files |= {self.root / path for node in result.plan.dag for path in node.files.values()}
        watch = watch_toolchain(self.config.toolchain)
        files |= set(watch.files)
        globs = [str(self.root / pattern) for pattern in self._patterns()]
        for kind in paths.KINDS:
            for folder in paths.search_path(kind, self.root):
                files |= set(folder.glob("*.yaml"))
                globs.append(f"{folder}/*.yaml")
        env = {name: self.environ.get(name) for node in result.plan.dag for name in node.env}
        env |= {name: self.environ.get(name) for name in watch.env}
        env |= dict(self.loaded.reads.env)
        records = [read_record(self.layout, step) for step in result.plan.dag.ids]
        entry: dict[str, object] = {
            "variants": chosen,
            "files": {self._name(path): [state.mark(str(path)), digests.of(path)] for path in sorted(files)},
            "folders": {self._name(path): path.stat().st_mtime_ns for path in sorted(folders)},
            "absent": [
                *(kind for kind in paths.KINDS if not (self.root / kind).exists()),
                *map(str, watch.absent),
            ],
            "globs": {
                self._name(Path(pattern)): [os.path.relpath(p, self.root) for p in state.listing(pattern)]
                for pattern in sorted(set(globs))
            },
            "env": {name: state.digest_text(v) if v is not None else None for name, v in sorted(env.items())},
            "prefixes": {ENV_PREFIX: sorted(name for name in self.environ if name.startswith(ENV_PREFIX))},
            "outputs": {path: list(s) for record in records if record for path, s in record.placed.items()},
        }
        digests.save()
        return entry

    def _patterns(self) -> list[str]:
        """Of files that belong to the project as soon as they exist."""
        samples = [pattern for model in self.config.models.values() for pattern in model.samples]
        rules = [rule for rule in self.config.fusion.rules if rule != DEFAULT]
        policies = [policy.activations.calibrate for policy in self.config.precision.values()]
        calibration = [calibration_path(entry) for found in policies if found for entry in found.data]
        metrics = [p.accept.metric for p in self.config.precision.values() if p.accept is not None]
        functions = [function_path(name) for name in metrics if is_function(name)]
        return [*samples, *functions, *rules, *calibration, *self.config.tuning]

    def _name(self, path: Path) -> str:
        full = path if path.is_absolute() else Path.cwd() / path
        return str(full.relative_to(self.root)) if full.is_relative_to(self.root) else str(full)

    def _modified_variants(self) -> set[str]:
        plan = self.planner().plan()
        return {name for step in plan.modified for name in plan.dag[step].variants}


def _check_lists(loaded: LoadedProject, root: Path) -> None:
    """That targets which a list names can be one module; a single one is looked at when it is planned."""
    for name, target in sorted(loaded.project.targets.items()):
        if len(target.use) > 1:
            try:
                load_members(target.use, paths.search_path("targets", root))
            except NotYet as error:
                error.exit_code = 2
                raise error.at(loaded.loc(f"targets.{name}.use")) from None


def _site_folders() -> set[Path]:
    """Where installing another version of a tool leaves a mark."""
    named = {Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")}
    return {folder for folder in named if folder.is_dir()}


__all__ = ["BuildResult", "Options", "Plan", "Project", "Selection"]
