"""Codes whose errors make up for each other, by what products read (GPTQ).

Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers", 2022,
arXiv 2210.17323. Of a row of weights w and the activations X that it meets, the error of the output is
(w - q) X X^T (w - q)^T: rounding one weight is made up for by moving those after it, by a factor that the
Cholesky factor of the inverse of X X^T has for each pair. Weights go in the order in which they lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from cuvil_build.quantize.calibrate import Stream
from cuvil_build.quantize.numbers import Codes, codes_of, grid_of
from cuvil_build.quantize.patches import patches_of
from cuvil_build.quantize.products import SMALLEST, Product, is_constant
from cuvil_build.quantize.scheme import NodePolicy, Weights
from cuvil_build.quantize.weights import Key, key_of

Array: TypeAlias = NDArray[Any]

DAMPING = 0.01
"""Of the mean of the diagonal, added to it, so that what samples never showed is not made up for."""
TRIES = 4
"""Of ten times the damping before."""
AT_ONCE = 128
"""Weights whose later ones are moved together."""
MOMENTS_NBYTES = 512 << 20
"""Of sums of products of activations in memory; more are gathered in further runs of the samples."""
SMALL = 128
"""Matrices that are inverted as a whole."""
ROWS = 4096
"""Activations of a sample that are multiplied at once."""


def compensated(
    rows: Array, moments: Array, block: int, dtype: str, *, zero_points: bool, scale_dtype: str
) -> tuple[Array, Array, Array | None]:
    """Codes, scales and zero points of `rows` [results, terms]; `moments` [terms, terms] is X X^T."""
    work = np.array(rows, np.float64)
    factor = _factor(moments)
    count, terms = work.shape
    blocks = -(-terms // block)
    codes = np.zeros(work.shape, np.int8)
    kind = np.float16 if scale_dtype == "float16" else np.float32
    scale = np.ones((count, blocks), kind)
    zero = np.zeros((count, blocks), np.int8) if zero_points else None
    step, shift = np.ones(count), np.zeros(count)
    for start in range(0, terms, AT_ONCE):
        end = min(start + AT_ONCE, terms)
        errors = np.zeros((count, end - start))
        for i in range(start, end):
            if i % block == 0:
                number = i // block
                # no block is longer than a stretch, so all of its weights have moved as far as they will
                part = work[:, i : min(i + block, end)].astype(np.float32)
                found, zeros = grid_of(
                    part, dtype, zero_points=zero_points, scale_dtype=scale_dtype, method="mse"
                )
                scale[:, number] = found
                step = found.astype(np.float64)
                if zero is not None and zeros is not None:
                    zero[:, number] = zeros
                    shift = zeros.astype(np.float64)
            column = work[:, i]
            code = codes_of(column[:, None], step, None if zero is None else shift.astype(np.int8), dtype)[
                :, 0
            ]
            codes[:, i] = code
            error = (column - (code - shift) * step) / factor[i, i]
            work[:, i + 1 : end] -= np.outer(error, factor[i, i + 1 : end])
            errors[:, i - start] = error
        work[:, end:] -= errors @ factor[start:end, end:]
    return codes, scale, zero


def _factor(moments: Array) -> Array:
    """U with U^T U the inverse of the damped sums; terms that never were anything but zero stand alone."""
    sums = np.array(moments, np.float64)
    diagonal = np.diag_indices_from(sums)
    unseen = sums[diagonal] <= 0
    sums[unseen, :] = sums[:, unseen] = 0
    mean = float(sums[diagonal].mean())
    sums[diagonal] += np.where(unseen, mean if mean > 0 else 1.0, 0.0)
    damping = DAMPING * (mean if mean > 0 else 1.0)
    for _ in range(TRIES):
        try:
            damped = sums.copy()
            damped[diagonal] += damping
            # of sums R R^T, R upper triangular, the inverse is U^T U with U the inverse of R
            return _cholesky(damped[::-1, ::-1])[1][::-1, ::-1]
        except np.linalg.LinAlgError:
            damping *= 10
    return np.eye(len(sums))


def _cholesky(sums: Array) -> tuple[Array, Array]:
    """The lower triangular L with L L^T the sums, and its inverse; by quarters, which are fast products."""
    size = len(sums)
    if size <= SMALL:
        root = np.linalg.cholesky(sums)
        return root, np.tril(np.linalg.inv(root))
    half = size // 2
    first, above = _cholesky(sums[:half, :half])
    across = sums[half:, :half] @ above.T
    last, below = _cholesky(sums[half:, half:] - across @ across.T)
    root, inverse = np.zeros((size, size)), np.zeros((size, size))
    root[:half, :half], root[half:, :half], root[half:, half:] = first, across, last
    inverse[:half, :half], inverse[half:, half:] = above, below
    inverse[half:, :half] = -below @ (across @ above)
    return root, inverse


# Of a graph --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Compensation:
    """Codes of the products of a graph, made once for whoever asks."""

    stream: Stream
    _codes: dict[Key, Codes] = field(default_factory=dict)

    def codes(
        self, policies: Mapping[ir.Node, NodePolicy], products: Mapping[ir.Node, Product]
    ) -> Mapping[Key, Codes]:
        """Of all that the policies want by this method, and that have the form for it."""
        wanted: dict[Key, list[Product]] = {}
        for node, product in products.items():
            weights = policies[node].weights
            if weights.method == "gptq" and not why_not(product, weights):
                wanted.setdefault(key_of(product, weights), []).append(product)
        missing = [key for key in wanted if key not in self._codes]
        for group in _groups(missing, {key: _terms(wanted[key][0]) for key in missing}):
            moments = self._moments({key: wanted[key] for key in group})
            for key in group:
                self._codes[key] = _solve(wanted[key][0], key[1], moments.pop(key))
        return self._codes

    def _moments(self, wanted: Mapping[Key, Sequence[Product]]) -> dict[Key, Array]:
        """The sums of all products that share the weights; those that read the same value are one."""
        readers: dict[str, list[tuple[Key, Product]]] = {}
        for key, products in wanted.items():
            for product in products:
                operand = product.node.inputs[product.operand]
                assert operand is not None
                readers.setdefault(str(operand.name), []).append((key, product))
        found = {key: np.zeros((_terms(p[0]),) * 2) for key, p in wanted.items()}

        def take(name: str, array: Array) -> None:
            made: dict[str, Array] = {}
            for key, product in readers[name]:
                form = _form(product)
                if form not in made:
                    made[form] = _sums(rows_read(product, array))
                found[key] += made[form]

        self.stream(sorted(readers), take)
        return found


def why_not(product: Product, weights: Weights) -> str:
    """Why a product's codes are not chosen by what it reads; empty where they are."""
    node, rank = product.node, product.array.ndim
    if is_constant(node.inputs[product.operand]):
        return "it reads a constant"
    if not weights.block:
        return "its weights have no blocks"
    if node.op_type == "ConvTranspose":
        return "blocks of transposed convolutions are not built"
    if node.op_type == "Conv" and node.attributes.get_int("group", 1) != 1:
        return "its groups read different channels"
    if node.op_type == "MatMul" and rank != 2:
        return "its weights have a batch"
    return "" if _terms(product) >= SMALLEST else "its sums are short"


def rows_read(product: Product, array: Array) -> Iterable[Array]:
    """What the sums of a product read, [sums, terms], some sums at a time."""
    node = product.node
    if node.op_type == "Conv":
        yield from patches_of(node, array, product.array.shape[2:], ROWS)
        return
    is_turned = product.weight == 0 or bool(node.attributes.get_int("transA", 0))
    flat = (np.swapaxes(array, -1, -2) if is_turned and array.ndim > 1 else array).reshape(
        -1, _terms(product)
    )
    for start in range(0, len(flat), ROWS):
        yield flat[start : start + ROWS]


def _form(product: Product) -> str:
    node = product.node
    attributes = sorted((name, str(attribute.value)) for name, attribute in node.attributes.items())
    windows = product.array.shape[2:] if node.op_type == "Conv" else ()
    return f"{node.op_type} {product.weight} {windows} {attributes}"


def _terms(product: Product) -> int:
    array = product.array
    return int(np.prod(array.shape[1:])) if product.node.op_type == "Conv" else int(array.shape[product.sums])


def _sums(parts: Iterable[Array]) -> Array:
    """Of activations with eight bits each, whose sums are the same in whatever order they are added."""
    total: Array | float = 0.0
    for part in parts:
        wide = part.astype(ml_dtypes.bfloat16).astype(np.float64)
        total = total + wide.T @ wide
    return np.asarray(total)


def _groups(keys: Sequence[Key], terms: Mapping[Key, int]) -> Iterable[list[Key]]:
    group: list[Key] = []
    nbytes = 0
    for key in sorted(keys, key=lambda k: (k[0], k[2])):
        size = 8 * terms[key] ** 2
        if group and nbytes + size > MOMENTS_NBYTES:
            yield group
            group, nbytes = [], 0
        group.append(key)
        nbytes += size
    if group:
        yield group


def _solve(product: Product, weights: Weights, moments: Array) -> Codes:
    array = product.array
    flat = array.reshape(len(array), -1) if product.node.op_type == "Conv" else array
    is_last = product.sums == flat.ndim - 1 or product.node.op_type == "Conv"
    rows = flat if is_last else flat.T
    codes, scale, zero = compensated(
        rows,
        moments,
        weights.block,
        weights.type,
        zero_points=weights.zero_points,
        scale_dtype=weights.scale,
    )

    def back(array: Array) -> Array:
        return np.ascontiguousarray(array if is_last else array.T)

    return Codes(back(codes), back(scale), None if zero is None else back(zero))
