"""Words as a simulated model speaks them: tokens, and what each of them is for. Pure.

Law: joining the tokens of a text gives the text back, whatever it holds; the same text always gives the same tokens.
"""

import re
import zlib
from dataclasses import dataclass, replace
from enum import Enum, auto

_PIECES = re.compile(
    r"<\|[a-z_]+\|>|</?(?:think|tool_call|tool_response|tools)>|\n| ?[^\W_]{1,12}| ?[^\w\s]{1,2}|[^\S\n]+|_",
)
_VOCABULARY = 151_936

END_OF_TURN = "<|im_end|>"
WHITESPACE = "\n\n"


class Kind(Enum):
    """The part that a stretch of generated tokens plays, in the mark-up of Qwen3 and Hermes."""

    THINK_OPEN = auto()
    REASONING = auto()
    THINK_CLOSE = auto()
    TEXT = auto()
    CALL_OPEN = auto()  # up to the whole name of the tool
    CALL_GAP = auto()  # between name and arguments
    ARGUMENTS = auto()
    CALL_CLOSE = auto()
    END = auto()


#: The mark-up of a call with what it says: text, where no tool parser reads it.
CALL_KINDS = frozenset({Kind.CALL_OPEN, Kind.CALL_GAP, Kind.ARGUMENTS, Kind.CALL_CLOSE})


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an offered tool. `arguments` is JSON text, or the plain input of a `custom` tool."""

    name: str
    arguments: str
    custom: bool = False
    namespace: str | None = None

    @property
    def full_name(self) -> str:
        """The name that the model was shown: vLLM flattens namespaces to `namespace__name`."""
        return f"{self.namespace}__{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of one kind. `complete` is False where the generation was cut inside it."""

    kind: Kind
    tokens: tuple[str, ...]
    call: Call | None = None
    complete: bool = True

    @property
    def text(self) -> str:
        """The tokens joined."""
        return "".join(self.tokens)

    def cut(self, tokens: tuple[str, ...]) -> "Segment":
        """The same stretch, ending early."""
        return replace(self, tokens=tokens, complete=False)


def tokenise(text: str) -> tuple[str, ...]:
    """Short words with the blank before them, marks, single newlines."""
    return tuple(_PIECES.findall(text))


def token_id(token: str) -> int:
    """A number for a token, as a vocabulary would give: equal for equal tokens."""
    return zlib.crc32(token.encode()) % _VOCABULARY
