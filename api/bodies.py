"""Request bodies in, JSON answers out."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from shared.errors import InvalidRequest
from shared.json_codec import TooManyValues, decode_foreign, encode


async def read_json(request: Request, limit: int) -> Any:
    """The JSON body, of at most `limit` bytes, whatever its content type says.

    Raises `InvalidRequest`: 413 where it is larger (before it is read, where it says so) or holds too many values, 415
    where it is compressed.
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise InvalidRequest("Send the request body without a content encoding.", status=415)
    if int(request.headers.get("content-length", 0)) > limit:  # the server has checked that it is a number
        raise _too_large(limit)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise _too_large(limit)
    try:
        return decode_foreign(bytes(body))
    except TooManyValues:
        raise InvalidRequest("The request body holds too many JSON values.", status=413) from None
    except ValueError:
        raise InvalidRequest("We could not parse the JSON body of your request. Send one JSON object.") from None


def _too_large(limit: int) -> InvalidRequest:
    return InvalidRequest(f"The request body is larger than {limit} bytes.", status=413)


def json_answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer, written losslessly."""
    return Response(encode(value), status, headers, media_type="application/json")
