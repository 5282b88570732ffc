"""The codec: what came is what goes."""

import pytest

from shared.json_codec import TooManyValues, decode, decode_foreign, encode

LOSSLESS = [
    b'{"b":1,"a":null,"c":[],"d":{}}',
    b"123456789012345678901234567890",
    b'"\xe5\x8c\x97 \xe2\x80\xa8 \\" \\\\ \\n"',
    b"[1.5,true,false,null]",
]


@pytest.mark.parametrize("raw", LOSSLESS)
def test_a_value_goes_as_it_came(raw: bytes) -> None:
    assert encode(decode(raw)) == raw


@pytest.mark.parametrize("raw", [b"", b"{", b"[NaN]", b"[Infinity]", b'"\\ud83d"', b"{'a':1}", b"[" * 5000])
def test_what_is_no_json_is_refused_without_being_told(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"^not valid JSON$"):
        decode(raw)


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"9" * 400 + b".5", b"9" * 5000])
@pytest.mark.parametrize("around", [b"%b", b"[[1,%b],2]", b'{"a":{"b":[%b]},"c":1}'])
@pytest.mark.parametrize("padding", [b"", b" " * 300], ids=["short", "long"])
def test_a_number_from_outside_that_could_only_go_on_as_null_is_refused(
    number: bytes, around: bytes, padding: bytes
) -> None:
    with pytest.raises(ValueError, match=r"^not valid JSON$"):
        decode_foreign(padding + around % number)


def test_the_largest_numbers_go_as_they_came() -> None:
    raw = b"[1.7976931348623157e308,-0.0,5e-324,%b]" % (b"9" * 4000)
    assert encode(decode_foreign(raw)) == raw.replace(b"e308", b"e+308")


def test_what_comes_from_outside_can_be_read_again_from_inside_what_we_put_around_it() -> None:
    accepted = refused = 0
    for depth in range(1, 260):
        raw = b"[" * depth + b'"' + b"x" * 300 + b'"' + b"]" * depth
        try:
            value = decode_foreign(raw)
        except ValueError:
            refused += 1
            continue
        accepted += 1
        assert encode(value) == raw
        assert decode(encode({"response": {"output": [value]}})) == {"response": {"output": [value]}}
    assert accepted > 150
    assert refused > 50


@pytest.mark.parametrize("raw", [b"", b"1],[2", b"1]],[[2", b"]", b"1,2"])
@pytest.mark.parametrize("padding", [b"", b" " * 300], ids=["short", "long"])
def test_a_value_from_outside_can_not_close_what_is_put_around_it(raw: bytes, padding: bytes) -> None:
    with pytest.raises(ValueError, match=r"^not valid JSON$"):
        decode_foreign(raw + padding)


@pytest.mark.parametrize(
    "raw",
    [b"[" + b",".join([b"[[[]]]"] * 200_000) + b"]", b"[" + b"{}," * 500_001 + b"1]", b"[" + b"1," * 5_000_001 + b"1]"],
    ids=["lists", "objects", "numbers"],
)
def test_what_would_take_seconds_to_read_is_not_read(raw: bytes) -> None:
    with pytest.raises(TooManyValues):
        decode_foreign(raw)
