import pytest

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.fusion.expression import BOOL, NUMBER, Function, NotKnown, parse_expression
from cuvil_build.fusion.tokens import RuleSyntax

FUNCTIONS = {
    f.name: f
    for f in (
        Function("twice", (NUMBER,), NUMBER, lambda _, n: 2 * n),
        Function("size", ("value",), NUMBER, lambda _, v: v),
        Function("either", ("value", "any"), "same", lambda _, v, default: default),
    )
}


def compute(text: str, type: str = BOOL, **values: object) -> object:
    return parse_expression(text, FUNCTIONS, type).compute(values, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3 == 7", True),
        ("(1 + 2) * 3 == 9 and not 1 > 2", True),
        ("true or false and false", True),
        ("-2 in [1, -2]", True),
        ("[1, 2] in [[1], [2, 1]]", False),
        ("7 % 4 == 3", True),
        ("'a' != \"b\"", True),
        ("twice(3) <= 6", True),
        ("either(x, 'no') == 'no'", True),
        ("1e-5 < 0.1 # a comment", True),
    ],
)
def test_computes(text: str, expected: bool) -> None:
    assert compute(text, x=None) is expected


def test_a_name_may_stand_for_a_free_dim() -> None:
    seq = IntExpr.of("seq")
    assert compute("size(x) * 2 == size(x) + size(x)", x=seq) is True
    assert compute("size(x) + 1 > size(x)", x=seq) is True
    with pytest.raises(NotKnown, match="seq"):
        compute("size(x) > 4", x=seq)


def test_logic_stops_where_the_answer_is_certain() -> None:
    seq = IntExpr.of("seq")
    assert compute("1 == 2 and size(x) > 4", x=seq) is False
    assert compute("1 == 1 or size(x) > 4", x=seq) is True


def test_formulas_give_numbers() -> None:
    assert compute("0.5 + 1 / 4", NUMBER) == 0.75
    with pytest.raises(NotKnown, match="zero"):
        compute("1 / (2 - 2)", NUMBER)


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("1 +", 3, "expected a value, not the end"),
        ("1 == 'a'", 2, "can't compare a number with a text by '=='"),
        ("'a' < 'b'", 4, "can't compare a text with a text by '<'"),
        ("1 and true", 2, "expected a bool, this is a number"),
        ("true and 1", 9, "expected a bool, this is a number"),
        ("tvice(1) == 2", 0, "unknown function 'tvice'"),
        ("twice(1, 2) == 2", 0, "'twice' takes 1 arguments, not 2"),
        ("twice('a') == 2", 0, "expected a number, this is a text"),
        ("1 in [1, 'a']", 5, "a list needs items of one type"),
        ("1 == 1)", 6, "unexpected ')'"),
        ("1 == 1 ~", 7, "unexpected character '~'"),
        ("x.__class__ == 1", 1, "unexpected '.'"),
        ("3", 0, "expected a bool, this is a number"),
        ("x == x", 2, "can't compare a value with a value by '=='"),
    ],
)
def test_mistakes_have_their_place(text: str, offset: int, message: str) -> None:
    with pytest.raises(RuleSyntax) as caught:
        parse_expression(text, FUNCTIONS, BOOL)
    assert (caught.value.offset, caught.value.message) == (offset, message)


def test_a_close_name_is_offered() -> None:
    with pytest.raises(RuleSyntax) as caught:
        parse_expression("tvice(1) == 2", FUNCTIONS, BOOL)
    assert caught.value.hint == "did you mean 'twice'?"
