"""Which beginnings of prompts the simulated engine has seen: what `cached_tokens` counts."""

from collections import OrderedDict
from collections.abc import Sequence


class PrefixCache:
    """Prompts in blocks of tokens, as vLLM's prefix cache keeps them; the block not used for longest goes first."""

    def __init__(self, block: int = 128, blocks: int = 4096) -> None:
        self._block = block
        self._blocks = blocks
        self._seen: OrderedDict[int, None] = OrderedDict()

    def look_up(self, tokens: Sequence[str], salt: str = "") -> tuple[int, int]:
        """How many tokens of this prompt were cached, and how many are new in the cache now."""
        hits = written = 0
        key = hash(salt)
        for start in range(0, len(tokens) - self._block + 1, self._block):
            key = hash((key, tuple(tokens[start : start + self._block])))
            if key in self._seen and not written:
                hits += 1
            elif key not in self._seen:
                written += 1
            self._seen[key] = None
            self._seen.move_to_end(key)
        while len(self._seen) > self._blocks:
            self._seen.popitem(last=False)
        return hits * self._block, written * self._block
