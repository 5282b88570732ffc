"""Which of the offered tools to call, with what; and JSON values that fit a schema. Pure.

Law: no understanding, only words: a tool is called when it is named (`Call run with cats`), or when the user's words
meet those of its name (`What is the weather in Paris and Rome?` calls `get_weather` twice).
"""

import re
from collections.abc import Sequence

from cli.simulated_prompt import Tool
from cli.simulated_tokens import Call
from shared.json_codec import Wire, decode, encode

_NAMED = re.compile(
    r"\b(?:call|use|run)\s+([\w.-]+)(?:\s+(?:with|on|for)\s+(.+?))?(?=[.!?]*\s*$|\s+and\s+(?:call|use)\b|[.;]\s)",
    re.IGNORECASE,
)
_PLACES = re.compile(r"\b(?:in|for|of|at|from|to)\s+([A-Z][\w-]*(?:(?:\s*,\s*|\s+and\s+|,\s+and\s+)[A-Z][\w-]*)*)")
_OBJECT = re.compile(r"\b(?:for|about|with|on|of|in)\s+(.+)", re.IGNORECASE)
#: Words that say nothing about which tool is meant.
_DULL = frozenset(
    re.findall(r"\w+", "a an and at by call for from get how in is it me my of on run the to tool what with")
)
_DEPTH = 8


def choose_calls(asked: str, tools: Sequence[Tool], forced: str | None) -> list[Call]:
    """The calls that a user's text asks for; with `forced` (`*`: any tool) at least one."""
    if forced not in (None, "*"):
        tools = [tool for tool in tools if tool.name == forced]
    named = _named_calls(asked, tools)
    if named or not tools:
        return named
    best = max(tools, key=lambda tool: len(_words(tool.name) & _words(asked)))
    if forced is None and not _words(best.name) & _words(asked):
        return []
    return [best.call(_arguments(best, value)) for value in _values(asked)]


def _named_calls(asked: str, tools: Sequence[Tool]) -> list[Call]:
    by_name = {tool.name.lower(): tool for tool in tools}
    found = [(by_name.get(name.lower()), value) for name, value in _NAMED.findall(asked)]
    return [tool.call(_arguments(tool, value)) for tool, value in found if tool]


def _words(text: str) -> set[str]:
    """Words without number and plural, so that `file_search` meets `search the files`."""
    return {word.rstrip("s") for word in re.findall(r"[a-z]{2,}", text.lower().replace("_", " "))} - _DULL


def _values(asked: str) -> list[str]:
    """What the calls are about: each place that is named, else the object of the sentence, else all of it."""
    if places := _PLACES.search(asked):
        return re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+", places[1])
    found = _OBJECT.search(asked)
    return [(found[1] if found else asked).strip(" .?!\n")]


def _arguments(tool: Tool, value: str) -> str:
    if tool.custom:
        return value
    schema = tool.parameters or {}
    properties: dict[str, Wire] = schema.get("properties") or {}
    names = [name for name in schema.get("required") or properties if name in properties]
    arguments = {name: instance(properties[name], value) for name in names}
    subject = next((name for name in names if properties[name].get("type") == "string"), None)
    if subject and value and "enum" not in properties[subject]:
        arguments[subject] = value
    return spaced(arguments)


def spaced(value: object) -> str:
    """JSON as a model writes it, with blanks after commas and colons."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{spaced(str(name))}: {spaced(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(spaced(entry) for entry in value) + "]"
    return encode(value).decode()


def instance(schema: object, hint: str, root: object = None, depth: int = 0) -> object:
    """A value that fits a simple JSON schema; words of `hint` fill its strings and choose among its enums."""
    if not isinstance(schema, dict) or depth > _DEPTH:
        return hint
    root = schema if root is None else root
    if "const" in schema:
        return schema["const"]
    if options := schema.get("enum"):
        return next((option for option in options if str(option).lower() in hint.lower()), options[0])
    if reference := schema.get("$ref"):
        return instance(_resolve(root, str(reference)), hint, root, depth + 1)
    if branches := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return instance(branches[0], hint, root, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return _of_type(kind[0] if isinstance(kind, list) else kind, schema, hint, root, depth)


def _of_type(kind: str, schema: Wire, hint: str, root: object, depth: int) -> object:
    numbers = [int(digits) for digits in re.findall(r"\d{1,15}", hint)]
    match kind:
        case "object":
            return {
                name: instance(entry, hint, root, depth + 1) for name, entry in (schema.get("properties") or {}).items()
            }
        case "array":
            return [instance(schema.get("items") or {}, hint, root, depth + 1)] * max(1, schema.get("minItems", 1))
        case "integer" | "number":
            low = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
            high = schema.get("maximum", schema.get("exclusiveMaximum", 10**15 + 1) - 1)
            return min(max(numbers[0] if numbers else 30, low), high)
        case "boolean":
            return True
        case "null":
            return None
    capital = re.search(r"(?<!^)\b[A-Z]\w+", hint)
    return capital[0] if capital else hint


def _resolve(root: object, reference: str) -> object:
    for name in reference.removeprefix("#").strip("/").split("/"):
        root = root.get(name) if isinstance(root, dict) and name else root
    return root


def example_object(asked: str, schema: Wire | None) -> str:
    """The answer to a request for JSON: fitting the schema where there is one."""
    if schema is not None:
        return spaced(instance(schema, asked))
    try:
        quoted = decode(asked[asked.index("{") : asked.rindex("}") + 1])
    except ValueError:
        quoted = None
    return spaced(quoted if isinstance(quoted, dict) else {"request": asked, "words": len(asked.split())})
