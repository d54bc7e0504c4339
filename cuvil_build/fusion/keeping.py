"""Which inner values of a region a group of kernels keeps in the cache, and whether that is a gain.

Three forms are looked at. Products of computed tensors, as attention has them, share their batch: each point
keeps its own part. A depthwise window needs of the product before it one channel and a few rows: a sliding
group. A product or window over all channels could take a block of rows at a time; then every block reads all
weights again, and a window computes the rows at its border twice.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from cuvil_build.cuir.int_expr import ONE
from cuvil_build.fusion.gain import Cost, Costs
from cuvil_build.fusion.scope import Scope
from cuvil_build.kernel.group_rows import blocks_of, bytes_saved, is_worth
from cuvil_build.kernel.sliding_match import Slide
from cuvil_build.kernel.sliding_plan import CHANNELS, Steps, plan_steps
from cuvil_build.ops.infer import attributes_of
from cuvil_build.ops.windows import WindowAttributes

CALL = 1024
"""Operations that one more call of a kernel's part takes as long as."""
_TILE, _LEAST_TILE = 6, 4
"""Rows of a register tile, and how few take as long as this many, since a sum waits for the one before."""


@dataclass(frozen=True, slots=True)
class Keeping:
    scope: Scope
    costs: Costs

    def region(self, nodes: Sequence[ir.Node], result: ir.Value) -> Cost | str:
        """What the nodes cost as a group; or why they are none that gains."""
        inside = set(nodes)
        kept: dict[ir.Value, Cost] = {}
        reasons: dict[str, int] = {}
        slid: set[ir.Node] = set()
        wanted = self.costs.wanted_in_memory(nodes)
        makers = {value: self._makers(value, inside) for value in wanted}
        # sliding groups come first: lowering makes them first
        order = sorted(wanted, key=lambda v: self._sliding(v, makers[v], wanted[v]) is None)
        for value in order:
            reader = wanted[value]
            spent, why = self._judged(value, makers[value], reader, slid)
            saved = Cost(bytes_saved(self.costs.nbytes(value)), 0, 1).nanoseconds
            if spent is None:
                reasons[f"nothing keeps '{value.name}' in the cache: {why}"] = 0
            elif why and saved <= spent.nanoseconds:
                text = f"keeping '{value.name}' in the cache would save {saved} ns and cost "
                reasons[f"{text}{spent.nanoseconds} ns: {why}"] = saved - spent.nanoseconds
            else:
                kept[value] = spent
                if self._sliding(value, makers[value], reader) is not None:
                    slid.update((*makers[value], reader))
        if not kept:
            known = [reason for reason, loss in reasons.items() if loss]
            best = max(known or reasons, key=lambda reason: reasons[reason], default="")
            return best or "no product reads what another one computes"
        total = self.costs.region(nodes, result, kept)
        for spent in kept.values():
            total += spent
        return total

    def _judged(
        self, value: ir.Value, makers: Sequence[ir.Node], reader: ir.Node, slid: Container[ir.Node]
    ) -> tuple[Cost | None, str]:
        """What it costs to keep a value for the node that reads it, and by what; an empty text: it is not
        asked whether that is worth it. None: no group does it."""
        if self._is_free(reader):
            return Cost(), ""
        if len(makers) != 1:
            return None, "no product computes it"
        found = self._sliding(value, makers, reader)
        if found is not None:
            steps, width = found
            return self._slid(value, makers[0], steps, width), "short tiles, and many small steps"
        if makers[0] in slid:
            return None, f"node '{makers[0].name}' is in another group"
        return self._blocks_of_rows(value, makers[0], reader)

    def _is_free(self, reader: ir.Node) -> bool:
        """Whether it multiplies computed tensors."""
        operands = self.scope.data_operands(reader)
        constants = map(self.scope.is_constant, operands)
        return self.scope.kind(reader) == "contraction" and not any(constants)

    def _makers(self, value: ir.Value, inside: set[ir.Node]) -> list[ir.Node]:
        """The products and windows that a value is made of, element by element."""
        found: dict[ir.Node, None] = {}
        waiting, seen = [value], {value}
        while waiting:
            node = waiting.pop().producer()
            if node is None or node not in inside:
                continue
            if self.scope.kind(node) != "map":
                found[node] = None
                continue
            fresh = [v for v in self.scope.data_operands(node) if v not in seen]
            seen.update(fresh)
            waiting += fresh
        return list(found)

    # Sliding -------------------------------------------------------------------------------------

    def _sliding(
        self, value: ir.Value, makers: Sequence[ir.Node], reader: ir.Node
    ) -> tuple[Steps, int] | None:
        """The steps of a sliding group, and how wide a row is; as lowering decides."""
        known = self.scope.known(value)
        if len(makers) != 1:
            return None
        (maker,) = makers
        if (
            maker.op_type != "Conv"
            or reader.op_type != "Conv"
            or known.dtype.name not in ("float32", "float64")
        ):
            return None
        slides = self._slides(reader)
        taps = {slide.reach for slide in self._slides(maker)}
        attributes = attributes_of(maker), attributes_of(reader)
        channels = known.shape[1]
        is_depthwise = channels.is_static and attributes[1].get("group", 1) == channels.value
        if not is_depthwise or attributes[0].get("group", 1) != 1 or taps != {1} or len(slides) not in (1, 2):
            return None
        if self.scope.known(reader.outputs[0]).shape[1] != channels or not self._has_weights(maker):
            return None
        if any(s.reach < s.stride or ONE in (s.extent, s.source) for s in slides):
            return None
        rows, columns = slides[0], slides[1] if len(slides) > 1 else None
        steps = plan_steps(rows, columns, channels.value, known.dtype.nbytes)
        width = 1 if columns is None else self.costs.size(columns.source)
        return None if steps is None else (steps, width)

    def _slides(self, node: ir.Node) -> list[Slide]:
        """Of a convolution; none where its padding is not known."""
        attributes = {k: v for k, v in attributes_of(node).items() if k != "group"}
        source, weights = node.inputs[0], node.inputs[1]
        assert source is not None and weights is not None
        moves = WindowAttributes.of(attributes)
        kernel = moves.of_weights(self.scope.known(weights).shape[2:])
        windows = moves.windows(self.scope.known(source).shape[2:], kernel)
        if not all(w.begin.is_static for w in windows):
            return []
        return [Slide("", w.output, w.extent, w.stride, w.reach, w.begin.value) for w in windows]

    def _has_weights(self, node: ir.Node) -> bool:
        weights = node.inputs[1]
        return weights is not None and self.scope.is_constant(weights)

    def _slid(self, value: ir.Value, maker: ir.Node, steps: Steps, width: int) -> Cost:
        """Clearing and moving rows, calls, and rows that are shorter than tiles."""
        shape = self.scope.known(value).shape
        points = self.costs.size(shape[0]) * -(-self.costs.size(shape[1]) // CHANNELS)
        rows, count = self.costs.size(steps.slide.source), self.costs.size(steps.count)
        row = width * min(CHANNELS, self.costs.size(shape[1]))
        moved = points * row * (steps.kept * count + steps.kept + steps.block)
        calls = points * (rows + 3 * count) * CALL
        tiles = -(-width // _TILE)
        long, short = width % tiles, tiles - width % tiles
        tiled = long * max(_LEAST_TILE, width // tiles + 1) + short * max(_LEAST_TILE, width // tiles)
        idle = self.costs.apart([maker]).flops * (tiled - width) // max(1, width)
        return Cost(0, moved + calls + idle)

    # Blocks of rows ------------------------------------------------------------------------------

    def _blocks_of_rows(self, value: ir.Value, maker: ir.Node, reader: ir.Node) -> tuple[Cost | None, str]:
        """What a group over blocks of rows costs; there is none where blocks would share rows."""
        both = [v for node in (maker, reader) for v in node.inputs[1:2] if v is not None]
        if len(both) != 2 or not all(map(self.scope.is_constant, both)):
            return None, f"node '{reader.name}' shares no axis with what it reads"
        if not bytes_saved(self.costs.nbytes(value)):
            return None, "it stays there by itself"
        weights = sum(map(self.costs.nbytes, both))
        blocks = blocks_of(self.costs.nbytes(value))
        rows, halo = self._rows(value, reader)
        twice = self.costs.apart([maker]).flops * halo * (blocks - 1) // max(1, rows)
        spent = Cost(weights * (blocks - 1), twice)
        saved = Cost(bytes_saved(self.costs.nbytes(value)), 0, 1)
        if self._shares_no_rows(reader) and is_worth(self.costs.nbytes(value), weights):
            return spent, ""
        if saved.nanoseconds > spent.nanoseconds:
            return None, "blocks of rows would gain, but only where none needs rows of another"
        again = f", and {halo} of its rows computed twice" if halo else ""
        return spent, f"{weights} bytes of weights are read for each of {blocks} blocks of rows{again}"

    def _rows(self, value: ir.Value, reader: ir.Node) -> tuple[int, int]:
        """Of a value, and how many of them two neighbouring blocks need."""
        shape = self.scope.known(value).shape
        if self.scope.kind(reader) != "window" or len(shape) < 3:
            return max(1, self.costs.size(*shape[:-1])), 0
        slides = self._slides(reader)
        halo = max(0, slides[0].reach - slides[0].stride) if slides else 0
        return max(1, self.costs.size(shape[2])), halo

    def _shares_no_rows(self, reader: ir.Node) -> bool:
        """Whether each row of the result needs that row alone."""
        slides = self._slides(reader) if self.scope.kind(reader) == "window" else []
        return self.scope.kind(reader) == "contraction" or all(s.reach == s.stride == 1 for s in slides)
