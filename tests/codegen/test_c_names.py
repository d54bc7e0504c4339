"""Names and texts that go into C."""

import pytest

from cuvil_build.codegen.c_names import c_comment, c_identifier, c_string, unique_identifiers


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("images", "images"),
        ("model/head:0", "model_head_0"),
        ("/a//b/", "a_b"),
        ("0", "t0"),
        ("", "unnamed"),
        ("é", "unnamed"),
        ("float", "float_"),
        ("class", "class_"),
        ("_x", "x"),
    ],
)
def test_identifiers_are_near_the_text(text: str, name: str) -> None:
    assert c_identifier(text) == name


def test_identifiers_are_unique_and_avoid_those_taken() -> None:
    assert unique_identifiers(["a.b", "a/b", "ctx", "a_b_2"], taken=["ctx"]) == [
        "a_b",
        "a_b_2",
        "ctx_2",
        "a_b_2_2",
    ]


def test_strings_survive_quotes_newlines_trigraphs_and_digits_after_escapes() -> None:
    assert c_string('a"b\\\n1?\u00e9') == '"a\\042b\\134\\0121\\077\\303\\251"'


def test_comments_cannot_end_early_or_continue_the_line() -> None:
    text = c_comment("a */ b /* c \\ d\ne ??/ " + "x" * 300)
    assert (
        "*/" not in text and "/*" not in text and "\\" not in text and "\n" not in text and "??" not in text
    )
    assert len(text) == 200
