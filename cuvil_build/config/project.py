"""The models of cuvil.yaml: validation and JSON Schema come from the same records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticCustomError

NOT_YET = "x-not-yet"
EXPECTED = "expected"
"""pydantic error type of a value of the wrong type where more than one type is right."""


class Section(BaseModel):
    """A mapping of cuvil.yaml: unknown keys are errors and values are never converted between types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def not_yet(description: str, default: Any = None, **limits: Any) -> Any:
    """A field that is in the schema and is not built: using it is an error that names the key."""
    return Field(
        default, description=f"{description} (Not yet.)", json_schema_extra={NOT_YET: True}, **limits
    )


@dataclass(frozen=True, slots=True)
class Shorthand:
    """Adds the short way to write a value to the JSON Schema of its full form."""

    schema: Mapping[str, Any]

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [dict(self.schema), handler(core)]}


def _in_list(value: Any) -> Any:
    if not isinstance(value, (str, list, tuple)):
        raise _expected("text or a list of texts")
    return (value,) if isinstance(value, str) else _tuple(value)


def _expected(what: str) -> PydanticCustomError:
    return PydanticCustomError(EXPECTED, "{what}", {"what": what})


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _keyed(key: str, what: str) -> Callable[[Any], Any]:
    """A text stands for a mapping with this key."""

    def wrap(value: Any) -> Any:
        if not isinstance(value, (str, dict, Section)):
            raise _expected(f"{what} or a mapping")
        return {key: value} if isinstance(value, str) else value

    return wrap


BYTE_COUNT = r"^[0-9]{1,18} ?(B|KiB|MiB|GiB|kB|MB|GB)$"
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
MODEL_NAME = r"^[A-Za-z][A-Za-z0-9_-]*$"
DIM_NAME = r"^[^\[\]\s]+(\[[0-9]+\])?$"

Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=NAME, max_length=64)]
ModelName = Annotated[str, Field(pattern=MODEL_NAME, max_length=64)]
DimName = Annotated[str, Field(pattern=DIM_NAME, max_length=256)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_in_list), Shorthand({"type": "string", "minLength": 1})]
TextList = Annotated[tuple[Text, ...], BeforeValidator(_tuple)]
Sizes = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_tuple)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(_tuple)]


def _with_unit(value: Any) -> Any:
    if not isinstance(value, str):
        raise _expected("a size with its unit, as in 256KiB")
    return value


ByteCount = Annotated[str, Field(pattern=BYTE_COUNT), BeforeValidator(_with_unit)]

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_bytes(text: str) -> int:
    """Of a text that is a ByteCount."""
    number = text.rstrip("BKMGik ")
    return int(number) * _UNITS[text.removeprefix(number).strip()]


FloatType = Literal["float32", "float16", "bfloat16"]
AnyType = Literal["float32", "float16", "bfloat16", "int8", "uint8", "int4", "uint4"]


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
    BeforeValidator(_keyed("path", "a path")),
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
            raise _invalid(f"max is {self.max}, less than min, {self.min}")
        for size in self.typical:
            if size < self.min or (self.max is not None and size > self.max):
                raise _invalid(f"typical size {size} is outside of min and max")
        for size in (*self.typical, *([self.max] if self.max is not None else [])):
            if size % self.multiple_of:
                raise _invalid(f"{size} is not a multiple of {self.multiple_of}")
        return self


def _fixed_dim(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, dict, Dim)):
        raise _expected("a size or a mapping such as {min: 1, max: 8}")
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


class Calibration(Section):
    """How activation ranges are measured."""

    data: Texts = Field(default=(), description="npz files or globs.")
    method: Literal["minmax", "entropy", "percentile"] = Field(
        default="minmax", description="How a range is chosen."
    )
    samples: int = Field(default=128, ge=1, description="How many samples are read.")


class WeightType(Section):
    """The type that weights are stored in."""

    type: AnyType = Field(default="float32", description="dtype of the stored weights.")
    per: Literal["tensor", "channel"] | None = Field(
        default=None, description="One scale per tensor or per channel."
    )
    block: int | None = Field(default=None, ge=2, description="One scale per block of this many weights.")
    scale: FloatType | None = Field(default=None, description="dtype of the scales.")


class ActivationType(Section):
    """The type that activations are computed in."""

    type: AnyType = Field(default="float32", description="dtype of activations.")
    calibrate: Calibration | None = Field(default=None, description="Measure ranges on data.")


class Accept(Section):
    """The accuracy below which a build fails."""

    metric: Literal["cosine", "max_error", "mean_error", "psnr", "top1"] = Field(
        description="What is measured."
    )
    at_least: float | None = Field(default=None, description="Lower bound.")
    at_most: float | None = Field(default=None, description="Upper bound.")


_TYPE_NAME = Shorthand({"type": "string", "enum": list(get_args(AnyType))})


class Precision(Section):
    """A precision policy; an empty one is plain float32."""

    weights: Annotated[WeightType, BeforeValidator(_keyed("type", "a dtype")), _TYPE_NAME] = Field(
        default=WeightType(), description="A dtype, or how weights are quantised."
    )
    activations: Annotated[ActivationType, BeforeValidator(_keyed("type", "a dtype")), _TYPE_NAME] = Field(
        default=ActivationType(), description="A dtype, or how activations are quantised."
    )
    keep: dict[AnyType, TextList] = not_yet("Node patterns that keep a dtype.", default={})
    accept: Accept | None = not_yet("The gate on accuracy.")
    numerics: Literal["fast", "strict"] = Field(
        default="fast",
        description="strict: sums are of the products that operators define; fast: convolutions may compute "
        "tiles of results from fewer products (Winograd), which rounds otherwise.",
    )

    @property
    def is_plain(self) -> bool:
        """float32 throughout."""
        return self.weights == WeightType() and self.activations == ActivationType()


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
    packages: Annotated[tuple[Literal["wheel", "c-sdk", "npm", "oci"], ...], BeforeValidator(_tuple)] = (
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
    builds: Annotated[tuple[Build, ...], BeforeValidator(_tuple)] = Field(
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
                raise _invalid(f"models '{seen[symbol]}' and '{name}' would share their C names")
            seen[symbol] = name
        return models


def _invalid(message: str) -> PydanticCustomError:
    return PydanticCustomError("invalid", message.replace("{", "{{"))


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
    if isinstance(value, Precision) and not value.is_plain:
        yield path, "a precision other than float32 is not built yet"
    elif isinstance(value, Section):
        yield from unbuilt(value, path)
    elif isinstance(value, dict):
        for key in sorted(value):
            yield from _unbuilt_value(value[key], (*path, key))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _unbuilt_value(item, (*path, index))
