"""Bytes of external data: mapped, checked against what the tensor needs, and never from outside a folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.errors import InvalidModel


def external_bytes(
    entries: Mapping[str, str], nbytes: int, folder: Path, what: str
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """`entries` are `location`, `offset` and `length` as the file gives them; `what` names the tensor."""
    location = entries.get("location", "")
    path = _path(location, folder, what)
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or nbytes)
    except ValueError as error:
        raise InvalidModel(f"{what}: offset or length of its external data is no number") from error
    if length != nbytes:
        raise InvalidModel(f"{what} has {length} bytes of external data, its shape needs {nbytes}")
    size = path.stat().st_size
    if offset < 0 or offset + nbytes > size:
        end = offset + nbytes
        raise InvalidModel(
            f"{what} ends at byte {end} of '{location}', which has {size}", hint="fetch it again"
        )
    if nbytes == 0:
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "r", offset, (nbytes,))


def external_tensor(tensor: ir.ExternalTensor, folder: Path) -> ir.TensorProtocol:
    """The tensor that one of onnx-ir's refers to. onnx-ir and onnxruntime refuse files with several links,
    which is how a store shares them."""
    entries = {"location": str(tensor.location)}
    entries |= {"offset": str(tensor.offset)} if tensor.offset is not None else {}
    entries |= {"length": str(tensor.length)} if tensor.length is not None else {}
    shape = tensor.shape.numpy()
    nbytes = math.ceil(math.prod(shape) * tensor.dtype.bitwidth / 8)
    return tensor_of(external_bytes(entries, nbytes, folder, f"tensor '{tensor.name}'"), tensor.dtype, shape)


def tensor_of(
    data: np.ndarray[Any, np.dtype[np.uint8]], dtype: ir.DataType, shape: tuple[int, ...]
) -> ir.TensorProtocol:
    if dtype.bitwidth < 8:
        return ir.PackedTensor(data, dtype, shape=ir.Shape(shape))
    return ir.Tensor(data.view(dtype.numpy()).reshape(shape), dtype=dtype)


def _path(location: str, folder: Path, what: str) -> Path:
    if not location or "\0" in location:
        raise InvalidModel(f"{what}: its external data names no file")
    if Path(location).is_absolute() or "\\" in location:
        raise InvalidModel(f"{what}: its external data '{location}' must be a path relative to the model")
    try:
        path = (folder / location).resolve()
        found = path.is_file()
    except (OSError, RuntimeError) as error:  # a name too long, or links in a circle
        raise InvalidModel(f"{what}: its external data '{location[:200]}' can't be opened") from error
    if not path.is_relative_to(folder.resolve()):
        raise InvalidModel(f"{what}: its external data '{location}' lies outside of the model's folder")
    if not found:
        raise InvalidModel(
            f"{what}: its external data '{location}' is missing", hint="put it beside the model"
        )
    return path
