"""The codec: what came is what goes."""

import pytest

from shared.json_codec import decode, encode

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
