"""Damage to ONNX files: bytes at random, and changes that know what a model is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import onnx
from google.protobuf.message import DecodeError
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
)

from tests.fuzz.seeds import Seed

ODD_INTEGERS = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 7, 255, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
ODD_NAMES = (
    *(
        "",
        " ",
        "?",
        "-1",
        "a b",
        "x\n#error",
        "*/ int evil(void);",
        'quote"',
        "back\\slash",
        "\0",
        "é",
        "日本語",
    ),
    *(
        "../../x",
        "/etc/passwd",
        "for",
        "int",
        "N+1",
        "N*N",
        "min",
        "max",
        "__import__('os')",
        "x" * 1200,
        "%s",
    ),
    *("y", "x", "b", "s", "CON", "${env:HOME}", "a.b:0", "a_b_0", "1", "\u202e", "unk__1"),
)
ODD_LOCATIONS = (
    *("weights.bin", "", ".", "..", "../outside/secret.bin", "/etc/passwd", "link.bin", "folder/secret.bin"),
    *("./weights.bin", "a/../weights.bin", "missing.bin", "weights.bin/x", "x" * 5000, "a\0b", "..\\secret"),
    *("loop.bin", "model.onnx", "cuvil.yaml", "~/x", "file:///etc/passwd", "\\\\host\\x"),
)
ODD_NUMBERS = ("", "-1", "0", "16", "4096", "1e3", "9" * 30, "9" * 5000, " 8", "0x10", "18446744073709551616")
ODD_METADATA = (
    *("cuvil.dims", "cuvil.source", "cuvil.nodes", "cuvil.ops", "cuvil.guards", "cuvil.order", "namespace"),
    *("pkg.torch.onnx.stack_trace", "", "cuvil.outputs"),
)
OPERATORS = tuple(sorted({schema.name for schema in onnx.defs.get_all_schemas()}))
DTYPES = (*range(28), 64, 999, -1)

Message = TypeVar("Message", AttributeProto, FunctionProto, TensorProto, ValueInfoProto)
Mutation = Callable[[ModelProto, random.Random], None]


def mutate(seed: Seed, rng: random.Random) -> tuple[bytes, str]:
    """The content of a damaged file, and what was done to it."""
    model = ModelProto()
    model.CopyFrom(seed.model)
    if rng.random() < 0.3:
        content = model.SerializeToString()
        return _damaged(content, rng), "bytes"
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        name = rng.choice(sorted(MUTATIONS))
        try:
            MUTATIONS[name](model, rng)
        except (ValueError, TypeError, IndexError, DecodeError):
            continue  # a value that protobuf itself refuses
        done.append(name)
    content = model.SerializeToString()
    if rng.random() < 0.05:
        content = _damaged(content, rng)
        done.append("bytes")
    return content, "+".join(done)


# Bytes -----------------------------------------------------------------------------------------------------


def _damaged(content: bytes, rng: random.Random) -> bytes:
    kind = rng.choice(("flip", "flip", "flip", "cut", "run", "copy", "insert", "text", "varint"))
    data = bytearray(content)
    at = rng.randrange(len(data))
    if kind == "flip":
        for _ in range(rng.choice((1, 1, 2, 8))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del data[at:]
    elif kind == "run":
        length = rng.choice((1, 4, 16, 64))
        data[at : at + length] = bytes([rng.choice((0, 0x7F, 0x80, 0xFF))]) * length
    elif kind == "copy":
        length = rng.randrange(1, 64)
        other = rng.randrange(len(data))
        data[at:at] = data[other : other + length]
    elif kind == "insert":
        data[at:at] = rng.randbytes(rng.randrange(1, 16))
    elif kind == "text":
        # Names that are no UTF-8, of the same length.
        places = [i for i, byte in enumerate(data) if 0x61 <= byte <= 0x7A]
        data[rng.choice(places)] = rng.choice((0xFF, 0x80, 0xC0, 0xED))
    else:
        data[at : at + 1] = b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"
    return bytes(data)


def _copy(message: Message) -> Message:
    """Apart from where it stands: protobuf crashes where a list is extended by its own last element."""
    made = type(message)()
    made.CopyFrom(message)
    return made


# Parts of a model ------------------------------------------------------------------------------------------


def _graphs(model: ModelProto) -> list[GraphProto]:
    return list(_within(model.graph))


def _within(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _within(attribute.g)


def _nodes(model: ModelProto) -> list[NodeProto]:
    inner = [node for function in model.functions for node in function.node]
    return [node for graph in _graphs(model) for node in graph.node] + inner


def _node(model: ModelProto, rng: random.Random) -> NodeProto:
    return rng.choice(_nodes(model))


def _values(model: ModelProto) -> list[ValueInfoProto]:
    return [v for g in _graphs(model) for v in (*g.input, *g.output, *g.value_info)]


def _tensors(model: ModelProto) -> list[TensorProto]:
    stored = [tensor for graph in _graphs(model) for tensor in graph.initializer]
    held = [a.t for node in _nodes(model) for a in node.attribute if a.HasField("t")]
    return [*stored, *held]


def _attribute(model: ModelProto, rng: random.Random) -> AttributeProto:
    return rng.choice([a for node in _nodes(model) for a in node.attribute])


def _names(model: ModelProto) -> list[str]:
    made = {name for node in _nodes(model) for name in (*node.input, *node.output)}
    return sorted(made | {v.name for v in _values(model)} | {t.name for t in _tensors(model)})


def _any_name(model: ModelProto, rng: random.Random) -> str:
    return rng.choice(_names(model)) if rng.random() < 0.7 else rng.choice(ODD_NAMES)


# Shapes and dtypes -----------------------------------------------------------------------------------------


def dim_of_a_value(model: ModelProto, rng: random.Random) -> None:
    shape = rng.choice(_values(model)).type.tensor_type.shape
    choice = rng.random()
    if choice < 0.15 or not shape.dim:
        shape.dim.add().dim_value = rng.choice(ODD_INTEGERS)
    elif choice < 0.25:
        del shape.dim[rng.randrange(len(shape.dim))]
    elif choice < 0.6:
        rng.choice(shape.dim).dim_value = rng.choice(ODD_INTEGERS)
    elif choice < 0.9:
        rng.choice(shape.dim).dim_param = rng.choice(ODD_NAMES)
    else:
        rng.choice(shape.dim).Clear()


def type_of_a_value(model: ModelProto, rng: random.Random) -> None:
    value = rng.choice(_values(model))
    choice = rng.random()
    if choice < 0.5:
        value.type.tensor_type.elem_type = rng.choice(DTYPES)
    elif choice < 0.6:
        value.ClearField("type")
    elif choice < 0.7:
        value.type.tensor_type.ClearField("shape")
    elif choice < 0.8:
        inner = value.type.sequence_type.elem_type.tensor_type
        inner.elem_type = 1
    elif choice < 0.9:
        value.type.optional_type.elem_type.tensor_type.elem_type = 1
    else:
        value.type.sparse_tensor_type.elem_type = 1


def tensor(model: ModelProto, rng: random.Random) -> None:
    chosen = rng.choice(_tensors(model))
    choice = rng.random()
    if choice < 0.3 and chosen.dims:
        chosen.dims[rng.randrange(len(chosen.dims))] = rng.choice(ODD_INTEGERS)
    elif choice < 0.4:
        chosen.dims.append(rng.choice(ODD_INTEGERS))
    elif choice < 0.5:
        del chosen.dims[:]
    elif choice < 0.65:
        chosen.data_type = rng.choice(DTYPES)
    elif choice < 0.75:
        chosen.raw_data = chosen.raw_data[: rng.randrange(len(chosen.raw_data) + 1)]
    elif choice < 0.85:
        rng.choice((chosen.float_data, chosen.double_data)).append(1.0)
    elif choice < 0.9:
        chosen.string_data.append(b"\xff")
    elif choice < 0.95:
        chosen.segment.begin, chosen.segment.end = -1, 2**40
    else:
        chosen.name = rng.choice(ODD_NAMES)


def claimed_size(model: ModelProto, rng: random.Random) -> None:
    """A tensor that says it is huge and holds nothing."""
    chosen = rng.choice(_tensors(model))
    for name in ("raw_data", "float_data", "int32_data", "int64_data", "double_data"):
        chosen.ClearField(name)
    del chosen.dims[:]
    chosen.dims.extend(
        rng.choice(((2**31, 2**31), (2**62, 4), (2**40,), (10**6, 10**6), (0, 2**62), (2**63 - 1,)))
    )


def external_location(model: ModelProto, rng: random.Random) -> None:
    chosen = rng.choice(_tensors(model))
    chosen.data_location = TensorProto.EXTERNAL
    chosen.ClearField("raw_data")
    entries = {e.key: e.value for e in chosen.external_data}
    entries["location"] = rng.choice(ODD_LOCATIONS)
    for key in ("offset", "length", "checksum"):
        if rng.random() < 0.4:
            entries[key] = rng.choice(ODD_NUMBERS)
    del chosen.external_data[:]
    for key, value in entries.items():
        chosen.external_data.add(key=key, value=value)


# Nodes -----------------------------------------------------------------------------------------------------


def operand(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    choice = rng.random()
    if choice < 0.2 or not node.input:
        node.input.append(_any_name(model, rng))
    elif choice < 0.4:
        del node.input[rng.randrange(len(node.input))]
    elif choice < 0.5:
        node.input[rng.randrange(len(node.input))] = ""
    elif choice < 0.6:
        del node.input[:]
    elif choice < 0.7:
        node.input.extend([node.input[0]] * rng.choice((1, 3, 300)))
    else:
        node.input[rng.randrange(len(node.input))] = _any_name(model, rng)


def result(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    choice = rng.random()
    if choice < 0.2 or not node.output:
        node.output.append(_any_name(model, rng))
    elif choice < 0.35:
        del node.output[rng.randrange(len(node.output))]
    elif choice < 0.5:
        node.output[rng.randrange(len(node.output))] = ""
    elif choice < 0.55:
        del node.output[:]
    else:
        node.output[rng.randrange(len(node.output))] = _any_name(model, rng)


def operator(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if rng.random() < 0.8:
        node.op_type = rng.choice(OPERATORS) if rng.random() < 0.9 else rng.choice(ODD_NAMES)
    else:
        domains = (
            "",
            "ai.onnx",
            "ai.onnx.ml",
            "com.microsoft",
            "local",
            "evil",
            "ai.cuvil.fused",
            "ai.cuvil.x",
        )
        node.domain = rng.choice(domains)


def order(model: ModelProto, rng: random.Random) -> None:
    graph = rng.choice(_graphs(model))
    nodes = [NodeProto.FromString(n.SerializeToString()) for n in graph.node]
    choice = rng.random()
    if choice < 0.4:
        rng.shuffle(nodes)
    elif choice < 0.6:
        nodes.append(rng.choice(nodes))
    elif choice < 0.8:
        nodes.remove(rng.choice(nodes))
    else:
        # A circle of the first and the last.
        nodes[0].input.append(nodes[-1].output[0])
    del graph.node[:]
    graph.node.extend(nodes)


def node_name(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    node.name = rng.choice(ODD_NAMES)
    node.overload = rng.choice(("", "", "x"))


def rename(model: ModelProto, rng: random.Random) -> None:
    """One value, everywhere: still a valid model."""
    old, new = rng.choice(_names(model)), rng.choice(ODD_NAMES)
    for node in _nodes(model):
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                names[index] = new if name == old else name
    for named in (*_values(model), *_tensors(model)):
        named.name = new if named.name == old else named.name


def attribute(model: ModelProto, rng: random.Random) -> None:
    chosen = _attribute(model, rng)
    choice = rng.random()
    if choice < 0.2:
        chosen.type = rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13))
    elif choice < 0.4:
        chosen.i = rng.choice(ODD_INTEGERS)
    elif choice < 0.55 and chosen.ints:
        chosen.ints[rng.randrange(len(chosen.ints))] = rng.choice(ODD_INTEGERS)
    elif choice < 0.65:
        del chosen.ints[:]
        chosen.ints.extend([rng.choice(ODD_INTEGERS)] * rng.choice((0, 1, 2, 5, 1000)))
    elif choice < 0.75:
        chosen.f = rng.choice((float("nan"), float("inf"), -1.0, 0.0, 1e38))
        chosen.floats.extend([chosen.f] * rng.choice((0, 1, 3)))
    elif choice < 0.85:
        chosen.s = rng.choice((b"", b"\xff\xfe", b"SAME_UPPER", b"reflect", b"x" * 2000, b"bilinear", b"\0"))
    elif choice < 0.9:
        chosen.ref_attr_name = rng.choice(("alpha", "x", ""))
    elif choice < 0.95:
        chosen.name = rng.choice(("axis", "axes", "to", "value", "pads", "then_branch", "body", "", "é"))
    else:
        for name in ("i", "f", "s", "t", "g"):
            chosen.ClearField(name)


def attributes(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    choice = rng.random()
    if choice < 0.3 and node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]
    elif choice < 0.5 and node.attribute:
        node.attribute.append(_copy(rng.choice(node.attribute)))
    elif choice < 0.75:
        source = _attribute(model, rng)
        node.attribute.append(_copy(source))
    else:
        name = rng.choice(
            ("axis", "keepdims", "to", "auto_pad", "group", "dilations", "kernel_shape", "perm")
        )
        value = rng.choice((rng.choice(ODD_INTEGERS), [1, 2], [], "SAME_LOWER", 0.5, [-1, -1], [2**62] * 3))
        kind = AttributeProto.INTS if value == [] else None
        node.attribute.append(helper.make_attribute(name, value, attr_type=kind))


# Graphs ----------------------------------------------------------------------------------------------------


def ports(model: ModelProto, rng: random.Random) -> None:
    graph = rng.choice(_graphs(model))
    port = rng.choice(("input", "output"))
    found = getattr(graph, port)
    choice = rng.random()
    if choice < 0.25 or not found:
        found.append(
            helper.make_tensor_value_info(_any_name(model, rng), 1, rng.choice(([2], [], ["N", -1], None)))
        )
    elif choice < 0.4:
        found.append(_copy(rng.choice(found)))
    elif choice < 0.55:
        del found[rng.randrange(len(found))]
    elif choice < 0.65:
        del found[:]
    else:
        rng.choice(found).name = _any_name(model, rng)


def stored(model: ModelProto, rng: random.Random) -> None:
    graph = rng.choice(_graphs(model))
    choice = rng.random()
    if choice < 0.3:
        graph.initializer.append(_copy(rng.choice(_tensors(model))))
    elif choice < 0.5 and graph.initializer:
        rng.choice(graph.initializer).name = _any_name(model, rng)
    elif choice < 0.7 and graph.initializer:
        chosen = rng.choice(graph.initializer)
        graph.input.append(helper.make_tensor_value_info(chosen.name, chosen.data_type, list(chosen.dims)))
    elif choice < 0.85:
        sparse = graph.sparse_initializer.add()
        sparse.values.CopyFrom(rng.choice(_tensors(model)))
        sparse.dims.append(rng.choice(ODD_INTEGERS))
    else:
        graph.value_info.append(helper.make_tensor_value_info(_any_name(model, rng), 1, [-1, 2**62]))


def versions(model: ModelProto, rng: random.Random) -> None:
    choice = rng.random()
    if choice < 0.5 and model.opset_import:
        rng.choice(model.opset_import).version = rng.choice((*range(-1, 30), 999, 2**40, 2**63 - 1))
    elif choice < 0.65:
        model.ir_version = rng.choice((-5, 0, 1, 2, 3, 4, 14, 99, 2**62))
    elif choice < 0.75:
        del model.opset_import[:]
    else:
        model.opset_import.add(
            domain=rng.choice(("", "ai.onnx", "x", "ai.onnx.ml", "é")), version=rng.choice((0, 5, 30))
        )


def metadata(model: ModelProto, rng: random.Random) -> None:
    """What we write ourselves, from a stranger."""
    owners = [model, *_graphs(model), *_nodes(model), *_values(model), *_tensors(model)]
    owner = rng.choice(owners)
    text = rng.choice(
        ("", "x", "[]", "{}", "1,0", "3,2,1,0", "[[", "a\nb", "9" * 3000, '[["a","==","b",""]]')
    )
    owner.metadata_props.add(key=rng.choice(ODD_METADATA), value=text)
    if rng.random() < 0.3:
        model.graph.name = rng.choice(ODD_NAMES)
    if rng.random() < 0.2:
        model.training_info.add().algorithm.name = "t"
        model.configuration.add(name="mesh", num_devices=-1)
    if rng.random() < 0.2:
        model.graph.quantization_annotation.add(tensor_name=rng.choice(ODD_NAMES))


# Functions and nesting -------------------------------------------------------------------------------------


def recursive_function(model: ModelProto, rng: random.Random) -> None:
    """A function that calls itself, directly or through others; or doubles at every level."""
    names = [f"f{n}" for n in range(rng.choice((1, 2, 3, 30)))]
    doubles = len(names) == 30
    for index, name in enumerate(names):
        next_name = names[(index + 1) % len(names)]
        last = doubles and index == len(names) - 1
        call = [helper.make_node("Relu" if last else next_name, ["a"], ["t"], domain="" if last else "evil")]
        call.append(
            helper.make_node("Relu" if last else next_name, ["t"], ["b"], domain="" if last else "evil")
        )
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("evil", 1)]
        model.functions.append(helper.make_function("evil", name, ["a"], ["b"], call, imports))
    model.opset_import.add(domain="evil", version=1)
    node = rng.choice(model.graph.node)
    del node.attribute[:]
    del node.input[1:]
    del node.output[1:]
    node.op_type, node.domain = names[0], "evil"


def function(model: ModelProto, rng: random.Random) -> None:
    if not model.functions:
        node = rng.choice(model.graph.node)
        made = helper.make_function(
            node.domain, node.op_type, ["a"], ["a"], [], [helper.make_opsetid("", 17)]
        )
        model.functions.append(made)
    chosen = rng.choice(model.functions)
    choice = rng.random()
    if choice < 0.2:
        chosen.input.append(_any_name(model, rng))
    elif choice < 0.4:
        chosen.output.append(_any_name(model, rng))
    elif choice < 0.5:
        del chosen.opset_import[:]
    elif choice < 0.6:
        chosen.attribute.append(rng.choice(("alpha", "", "x")))
    elif choice < 0.7:
        chosen.name = rng.choice(("Relu", "Add", "", *ODD_NAMES))
    elif choice < 0.8:
        chosen.domain = rng.choice(("", "ai.onnx", "x"))
    elif choice < 0.9:
        model.functions.append(_copy(chosen))
    else:
        del chosen.node[:]


def nesting(model: ModelProto, rng: random.Random) -> None:
    """Branches in branches."""
    name, condition = model.graph.output[0].name, "deep_condition"
    model.graph.initializer.append(helper.make_tensor(condition, TensorProto.BOOL, [], [1]))
    inner = helper.make_node("Identity", [name], ["d0"])
    for depth in range(rng.choice((1, 5, 20, 45, 120))):
        branches = {}
        for side in ("then_branch", "else_branch") if depth < 3 else ("then_branch",):
            value = helper.make_tensor_value_info(f"d{depth}", 1, None)
            branches[side] = helper.make_graph([inner], side, [], [value])
        branches.setdefault("else_branch", branches["then_branch"].__class__())
        inner = helper.make_node("If", [condition], [f"d{depth + 1}"], **branches)
    model.graph.node.append(inner)
    model.graph.output[0].name = inner.output[0]


def many(model: ModelProto, rng: random.Random) -> None:
    """A chain of some thousand nodes."""
    last = model.graph.output[0].name
    for number in range(rng.choice((50, 400, 1500))):
        model.graph.node.append(helper.make_node("Neg", [last], [f"chain_{number}"]))
        last = f"chain_{number}"
    model.graph.output[0].name = last


def shadowing(model: ModelProto, rng: random.Random) -> None:
    """A body that defines what is defined outside."""
    inner = _graphs(model)[1:]
    graph = rng.choice(inner)
    copied = rng.choice(_tensors(model)) if _tensors(model) else helper.make_tensor("x", 1, [1], [1.0])
    graph.initializer.append(_copy(copied))
    graph.initializer[-1].name = rng.choice([name for name in _names(model) if name])


PLAIN: Sequence[Mutation] = (
    *(dim_of_a_value, type_of_a_value, tensor, claimed_size, external_location, operand, result, operator),
    *(order, node_name, rename, attribute, attributes, ports, stored, versions, metadata, recursive_function),
    *(function, nesting, many, shadowing),
)
MUTATIONS = {mutation.__name__: mutation for mutation in PLAIN}
