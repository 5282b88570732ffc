"""Bytes to wire values and back: the only JSON reader and writer of the house.

Law: what came is what goes. Integers of any size, `null` and absence, empty lists and key order survive a round trip; a
fraction is the nearest double, and a number beyond all doubles goes as `null`.
Not JSON, so refused: NaN, Infinity, lone surrogates, nesting beyond the parser's limit.
"""

from typing import Any, TypeAlias

from pydantic_core import from_json, to_json

#: A JSON object as it stood on the wire.
Wire: TypeAlias = dict[str, Any]


def decode(raw: bytes | str) -> Any:
    """Parse one JSON value. Raises `ValueError`, whose message never holds the text."""
    try:
        return from_json(raw, allow_inf_nan=False)
    except ValueError:
        raise ValueError("not valid JSON") from None


#: Levels of nesting that a value from outside leaves to what we put around it. The parser's limit is about 200.
_SPARE = 8
#: Bytes that can't hold so many levels.
_SHALLOW = 256


def decode_foreign(raw: bytes) -> Any:
    """As `decode`, a little less deep: what is accepted here can be read again from inside an event or a response."""
    if len(raw) < _SHALLOW:
        return decode(raw)
    value = decode(b"[" * _SPARE + raw + b"]" * _SPARE)
    for _ in range(_SPARE):
        if len(value) != 1:
            raise ValueError("not valid JSON")
        value = value[0]
    return value


def encode(value: Any) -> bytes:
    """One line of compact UTF-8 JSON."""
    return to_json(value, inf_nan_mode="null")
