"""Bytes to wire values and back: the only JSON reader and writer of the house.

Law: what came is what goes. Integers (up to 4,300 digits), `null` and absence, empty lists and key order survive a
round trip; a fraction is the nearest double.
Not JSON, so refused: NaN, Infinity, lone surrogates, nesting beyond the parser's limit; from outside also a number
beyond all doubles, which could only go on as `null`.
"""

from math import isfinite
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
#: Brackets and commas that a value from outside may hold, in its texts too: what is read holds up everything else.
#: At these limits that takes a fifth of a second.
_MOST_BRACKETS = 500_000
_MOST_COMMAS = 5_000_000


class TooManyValues(ValueError):
    """A value from outside that would take too long to read."""


def decode_foreign(raw: bytes) -> Any:
    """As `decode`, for what comes from outside: what is accepted can be written, and read again from inside an event.

    So it is a little less deep, and has no number beyond a double. Raises `TooManyValues` before it reads anything.
    """
    value = decode_shallow(raw)
    if not is_finite(value):
        raise ValueError("not valid JSON")
    return value


def decode_shallow(raw: bytes) -> Any:
    """As `decode_foreign`, but numbers are not looked at: that is for who keeps them (`is_finite`)."""
    if len(raw) < _SHALLOW:
        return decode(raw)
    if raw.count(b"[") + raw.count(b"{") > _MOST_BRACKETS or raw.count(b",") > _MOST_COMMAS:
        raise TooManyValues("too many values")
    value = decode(b"[" * _SPARE + raw + b"]" * _SPARE)
    for _ in range(_SPARE):
        if len(value) != 1:
            raise ValueError("not valid JSON")
        value = value[0]
    return value


def is_finite(value: Any) -> bool:
    """Whether every number in a value is one that JSON can hold."""
    left = [value]
    while left:
        match left.pop():
            case dict() as pairs:
                left.extend(pairs.values())
            case list() as values:
                left.extend(values)
            case float() as number if not isfinite(number):
                return False
    return True


def encode(value: Any) -> bytes:
    """One line of compact UTF-8 JSON."""
    return to_json(value, inf_nan_mode="null")
