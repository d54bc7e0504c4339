"""The models of cuvil.yaml: validation and JSON Schema come from the same records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator
from pydantic.json_schema import GenerateJsonSchema

from cuvil_build.config.precision import Precision
from cuvil_build.config.section import (
    NOT_YET,
    ByteCount,
    DimName,
    ModelName,
    Name,
    Numbers,
    Section,
    Sha256,
    Shorthand,
    Sizes,
    Text,
    TextList,
    Texts,
    as_tuple,
    expected,
    invalid,
    keyed,
    not_yet,
)


class PathSource(Section):
    """A model file in the project."""

    path: Text = Field(description="The file, relative to cuvil.yaml.")
    sha256: Sha256 | None = Field(default=None, description="Digest that the file must have.")


class PypiSource(Section):
    """A file inside a package from PyPI."""

    pypi: Text = Field(description="Package name.")
    version: Text = Field(description="Exact version, as text.")
    member: Text = Field(description="Path of the model inside the wheel.")
    sha256: Sha256 | None = Field(default=None, description="Digest that the model must have.")


class TorchSource(Section):
    """A Python entry point that returns a torch module."""

    torch: Text = not_yet("module:function that returns the torch module.", default=...)


class SavedModelSource(Section):
    """A TensorFlow SavedModel folder."""

    saved_model: Text = not_yet("The folder.", default=...)


class HubSource(Section):
    """A file of a Hugging Face repository."""

    hub: Text = not_yet("Repository, as in org/name.", default=...)
    file: Text = Field(description="Path inside the repository.")
    revision: Text | None = Field(default=None, description="Commit, tag or branch.")


SOURCE_KINDS = ("path", "pypi", "torch", "saved_model", "hub")


def _source_kind(value: Any) -> str | None:
    """The tag of a branch; in brackets, so that it is never mistaken for a key of the data."""
    keys = value if isinstance(value, dict) else vars(value) if isinstance(value, Section) else ()
    return next((f"<{kind}>" for kind in SOURCE_KINDS if kind in keys), None)


Source = Annotated[
    Annotated[PathSource, Tag("<path>")]
    | Annotated[PypiSource, Tag("<pypi>")]
    | Annotated[TorchSource, Tag("<torch>")]
    | Annotated[SavedModelSource, Tag("<saved_model>")]
    | Annotated[HubSource, Tag("<hub>")],
    Discriminator(
        _source_kind,
        custom_error_type="source_kind",
        custom_error_message="a source is a path, or a mapping with path, pypi, torch, saved_model or hub",
    ),
    BeforeValidator(keyed("path", "a path")),
    Shorthand({"type": "string", "minLength": 1, "description": "A path relative to cuvil.yaml."}),
]


class Dim(Section):
    """A named dim: fixed when `min` equals `max`, else dynamic; without `max` it has no bound."""

    min: int = Field(default=1, ge=0, description="Smallest size.")
    max: int | None = Field(
        default=None, ge=0, description="Largest size; without it the module allocates as it grows."
    )
    typical: Sizes = Field(default=(), description="Sizes to tune and to verify with.")
    multiple_of: int = Field(default=1, ge=1, description="Sizes are multiples of this.")

    @property
    def is_fixed(self) -> bool:
        return self.min == self.max

    @model_validator(mode="after")
    def _check(self) -> Dim:
        if self.max is not None and self.max < self.min:
            raise invalid(f"max is {self.max}, less than min, {self.min}")
        for size in self.typical:
            if size < self.min or (self.max is not None and size > self.max):
                raise invalid(f"typical size {size} is outside of min and max")
        for size in (*self.typical, *([self.max] if self.max is not None else [])):
            if size % self.multiple_of:
                raise invalid(f"{size} is not a multiple of {self.multiple_of}")
        return self


def _fixed_dim(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, dict, Dim)):
        raise expected("a size or a mapping such as {min: 1, max: 8}")
    return {"min": value, "max": value} if isinstance(value, int) else value


DimSpec = Annotated[
    Dim,
    BeforeValidator(_fixed_dim),
    Shorthand({"type": "integer", "minimum": 0, "description": "A fixed size."}),
]


class InputSpec(Section):
    """Preprocessing of one input, compiled into the module."""

    dtype: Text | None = Field(default=None, description="dtype that the caller gives.")
    layout: Literal["NCHW", "NHWC"] | None = Field(default=None, description="Layout that the caller gives.")
    mean: Numbers = Field(default=(), description="Subtracted per channel.")
    scale: Numbers = Field(default=(), description="Multiplied per channel.")


class Labels(Section):
    """The right answers of the samples, so that accuracy is reported beside numeric error."""

    file: Text = Field(description="npz file with one class number per sample.")
    output: Text = Field(description="The output whose largest entry is the answer.")


class Model(Section):
    """One model and what is known of its inputs."""

    source: Source = Field(description="Where the model comes from.")
    dims: dict[DimName, DimSpec] = Field(
        default_factory=dict,
        description="Named dims, or input[axis]: a number fixes one, a range keeps it dynamic.",
    )
    outputs: TextList | None = Field(default=None, description="Keep only these outputs.", min_length=1)
    samples: Texts = Field(
        default=(), description="npz files or globs with real inputs; else seeded random ones."
    )
    labels: Labels | None = Field(default=None, description="Right answers of the samples.")
    tags: TextList = Field(default=(), description="Words for selectors.")
    state: dict[Text, Text] = not_yet(
        "Input to output pairs that are kept in place between calls.", default={}
    )
    inputs: dict[Text, InputSpec] = not_yet("Preprocessing per input.", default={})


class ShardLoad(Section):
    """Which shards are in memory when."""

    first: int = Field(default=1, ge=1, description="Shards that are loaded at open.")
    prefetch: int = Field(default=1, ge=0, description="Shards that are loaded ahead.")


class ShardEvict(Section):
    """When shards leave memory."""

    policy: Literal["never", "lru", "lru_on_memory_pressure"] = Field(
        default="never", description="Which shard leaves."
    )
    budget: ByteCount | None = Field(default=None, description="Bytes of weights that may stay.")


class Sharding(Section):
    """How a model is cut into shards."""

    by: Literal["bytes", "layers"] | None = Field(default=None, description="What a shard is limited by.")
    limit: ByteCount | Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Size of one shard."
    )
    load: ShardLoad | None = Field(default=None, description="Loading on demand.")
    evict: ShardEvict | None = Field(default=None, description="Unloading.")
    tensor_parallel: int | None = Field(default=None, ge=2, description="Ranks that share every layer.")
    pipeline_parallel: int | None = Field(
        default=None, ge=2, description="Ranks that hold consecutive layers."
    )
    collective: Literal["mpi", "shared_memory", "nccl"] | None = Field(
        default=None, description="How ranks talk."
    )
    overlap: bool = Field(default=False, description="Compute while a collective runs.")


class MemoryBudget(Section):
    """What a module may take; a build that needs more fails and names the nodes to blame."""

    arena: ByteCount | None = Field(
        default=None, description="Of the arena, at the largest sizes of free dims, as in 256KiB."
    )
    weights: ByteCount | None = Field(default=None, description="Of the weights file, or what is embedded.")
    stack: ByteCount | None = Field(default=None, description="Of each thread's stack.")


class TargetUse(Section):
    """A target of this project."""

    use: Texts = Field(
        min_length=1, description="A target of 'cuvil targets'; a list is one library, dispatched at open."
    )
    weights: Literal["file", "embed"] = Field(
        default="file",
        description="Beside the library, or, up to 16 MiB, in it: then nobody names a weights file.",
    )
    memory: MemoryBudget = Field(default=MemoryBudget(), description="Limits that a build must keep.")
    tuned_for: Text | None = Field(
        default=None, description="Model of CPU whose tuning record is used, as 'cuvil tune' names it."
    )


class Fusion(Section):
    """Which fusion rules run."""

    rules: TextList = Field(default=("default",), description="'default' and rule files or globs.")
    overrides: Text | None = Field(
        default=None, description="File that denies, forces or pins rules, by node name or source line."
    )
    strict: bool = Field(default=False, description="Fail where decisions are left for a person to review.")


class Build(Section):
    """A block of the matrix; what is left out means all."""

    model: Texts = Field(default=(), description="Model name or names; without it all.")
    precision: Texts = Field(default=(), description="Precision name or names; without it all.")
    target: Texts = Field(default=(), description="Target name or names; without it all of `targets`.")
    sharding: Texts = not_yet("Sharding name or names.", default=())
    tags: TextList = Field(default=(), description="Words for selectors.")


class Verify(Section):
    """How results are checked."""

    reference: Literal["onnxruntime", "onnx"] = Field(
        default="onnxruntime", description="The independent yardstick."
    )
    every_pass: bool = Field(default=True, description="Compare after every graph pass, too.")


class Cache(Section):
    """The store of steps."""

    mode: Literal["read-write", "read-only", "off"] = Field(
        default="read-write",
        description="read-only keeps nothing new; off looks nothing up, either.",
    )
    remote: Text | None = not_yet("A shared store: a folder, http(s)://, s3:// or grpc(s)://.")


class Release(Section):
    """What is packaged, and as which version."""

    version: Text | None = not_yet("A version, or 'git' for the tag at hand.")
    packages: Annotated[tuple[Literal["wheel", "c-sdk", "npm", "oci"], ...], BeforeValidator(as_tuple)] = (
        not_yet("Formats that are packaged.", default=())
    )


class Project(Section):
    """A whole cuvil.yaml."""

    version: Literal[1] = Field(description="Version of this format.")
    project: Name = Field(description="The project's name.")
    models: dict[ModelName, Model] = Field(min_length=1, description="The models by name.")
    precision: dict[Name, Precision] = Field(
        default_factory=lambda: {"fp32": Precision()}, min_length=1, description="Precision policies by name."
    )
    sharding: dict[Name, Sharding] = not_yet("Sharding policies by name.", default={})
    targets: dict[Name, TargetUse] = Field(
        default_factory=dict, description="Targets by this project's names."
    )
    fusion: Fusion = Field(default=Fusion(), description="Fusion rules.")
    tuning: TextList = Field(
        default=(), description="Tuning records of 'cuvil tune': files or globs; see tuned_for of targets."
    )
    builds: Annotated[tuple[Build, ...], BeforeValidator(as_tuple)] = Field(
        default=(), description="What is built; without it every model, precision and target."
    )
    toolchain: Literal["zig", "system"] = Field(
        default="zig",
        description="The C compiler: the embedded one, or gcc or clang of the system, for its own CPUs.",
    )
    verify: Verify = Field(default=Verify(), description="Numeric checks.")
    cache: Cache = Field(default=Cache(), description="The store of steps.")
    release: Release = Field(default=Release(), description="Packaging.")
    profiles: dict[Name, dict[str, Any]] = Field(
        default_factory=dict, description="Parts of this file that `--profile NAME` merges over the rest."
    )

    @field_validator("models")
    @classmethod
    def _distinct_symbols(cls, models: dict[str, Model]) -> dict[str, Model]:
        seen: dict[str, str] = {}
        for name in sorted(models):
            symbol = name.replace("-", "_").lower()
            if symbol in seen:
                raise invalid(f"models '{seen[symbol]}' and '{name}' would share their C names")
            seen[symbol] = name
        return models


class _Schema(GenerateJsonSchema):
    schema_dialect = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The JSON Schema of cuvil.yaml, in a stable order."""
    schema = Project.model_json_schema(schema_generator=_Schema)
    return {"$schema": _Schema.schema_dialect, "title": "cuvil.yaml", **schema}


def unbuilt(
    section: Section, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Paths of values that say something which is not built, with what it is."""
    for name in sorted(section.model_fields_set):
        value = getattr(section, name)
        extra = type(section).model_fields[name].json_schema_extra
        here = (*path, name)
        if isinstance(extra, dict) and extra.get(NOT_YET) and value not in (None, (), {}):
            yield here, f"'{'.'.join(map(str, here))}' is not built yet"
        else:
            yield from _unbuilt_value(value, here)


def _unbuilt_value(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, Precision):
        yield from (((*path, *key), message) for key, message in value.not_built())
    if isinstance(value, Section):
        yield from unbuilt(value, path)
    elif isinstance(value, dict):
        for key in sorted(value):
            yield from _unbuilt_value(value[key], (*path, key))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _unbuilt_value(item, (*path, index))
