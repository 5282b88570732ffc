"""What the simulated model thinks of a chat and says to it. Pure: the dice are the caller's.

Law: the answer shows what the input held. Facts told earlier (`My name is Cleo.`) are recalled, tool outputs are
used, earlier turns and their reasoning are counted and quoted in the reasoning.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from cli.simulated_prompt import Chat, ChatMessage
from cli.simulated_tokens import Call
from shared.json_codec import decode

_FACT = re.compile(r"\b(my|the)\s+((?:[a-z]+\s+){0,2}?[a-z]+)\s+is\s+(?:called\s+)?([\w'-]+)", re.IGNORECASE)
_QUESTION = re.compile(r"\bwhat(?:\s+is|'s|\s+was)\s+(my|the)\s+((?:[a-z]+\s+){0,2}?[a-z]+)\s*\?", re.IGNORECASE)
_COUNT = re.compile(r"\bcount\s+(?:from\s+(\d{1,7})\s+)?(?:up\s+)?to\s+(\d{1,7})", re.IGNORECASE)
_WORDS = re.compile(r"\b(\d{1,6})\s+words\b", re.IGNORECASE)
_ECHO = re.compile(r"^\s*(?:please\s+)?(?:say|repeat(?:\s+after\s+me)?|echo)\s*:?\s+(.+)$", re.IGNORECASE | re.DOTALL)
_SUM = re.compile(r"(-?\d{1,12})\s*(\+|-|\*|x|times|plus|minus)\s*(-?\d{1,12})")
_FIRST = re.compile(r"\bwhat\b.*\b(?:first|before|earlier)\b", re.IGNORECASE)
_GREETING = re.compile(r"^\W*(?:(?:hello|hi|hey|good\s+\w+)\b)?\W*$", re.IGNORECASE)

#: Longest count that is written out: beyond it a slip of the keyboard would fill the memory.
_MAX_COUNT = 200_000

_SENTENCES = (
    "The river keeps its own time.",
    "A queue is a promise in order.",
    "Somebody left the light on in the harbour.",
    "Rain writes slowly on warm stone.",
    "Every answer was once a question with patience.",
    "The train is late, but it sings.",
    "Two clocks agree only by accident.",
    "Bread rises without being told.",
    "A map is a letter to a stranger.",
    "Snow makes even the loud streets think.",
    "The cat has counted the stairs again.",
    "Nobody remembers who first named the wind.",
)
_ASIDES = (
    "Let me take it step by step.",
    "That should not take long.",
    "I want to be careful here.",
    "I know this kind of request.",
    "First things first.",
    "There is more than one way to do it.",
    "I will keep it short.",
    "I see no trap in it.",
)


@dataclass(frozen=True, slots=True)
class Reply:
    """One finished thought: its reasoning, then text, or calls."""

    reasoning: str
    text: str = ""
    calls: tuple[Call, ...] = ()


def last_user_text(chat: Chat) -> str:
    """The words that are answered; nothing where no user ever spoke."""
    return next((message.content or "" for message in reversed(chat.messages) if message.role == "user"), "")


def pending_results(chat: Chat) -> list[ChatMessage]:
    """The tool outputs at the end of the chat, still unanswered."""
    results: list[ChatMessage] = []
    for message in reversed(chat.messages):
        if message.role != "tool":
            break
        results.insert(0, message)
    return results


def reasoning_about(chat: Chat, asked: str, plan: str, dice: Random) -> str:
    """What is asked, what the input holds of earlier turns, what comes next."""
    results = pending_results(chat)
    if results:
        topic = f'The tool gave me {_counted(len(results), "result")}, the last one "{_quote(results[-1].content)}".'
    elif asked:
        topic = f'{dice.choice(("The user says", "I was asked", "The request reads"))} "{_quote(asked)}".'
    else:
        topic = "The user says nothing."
    return " ".join(filter(None, (topic, _memory(chat), dice.choice(_ASIDES), plan)))


def _memory(chat: Chat) -> str:
    turns = [message for message in chat.messages if message.role == "user"]
    thoughts = [message.reasoning for message in chat.messages if message.reasoning]
    seen = len(turns) - 1
    if seen < 1 and not thoughts:
        return ""
    parts = [f"I can see {_counted(max(seen, 0), 'earlier turn')} and {_counted(len(thoughts), 'reasoning item')}."]
    if seen > 0:
        parts.append(f'The first turn began "{_quote(turns[0].content)}".')
    if thoughts:
        last = f' and my last one "{_quote(thoughts[-1])}"' if len(thoughts) > 1 else ""
        parts.append(f'My first reasoning began "{_quote(thoughts[0])}"{last}.')
    return " ".join(parts)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _quote(text: str | None, words: int = 9) -> str:
    """The first few words, without marks that would read as mark-up or as a quote's end."""
    plain = re.sub(r'<[^<>]*>|["<>]', "", text or "")
    return " ".join(word[:24] for word in plain.split()[:words]).rstrip(".,;:!?")


def answer(chat: Chat, asked: str, dice: Random) -> tuple[str, str]:
    """A plan, as the reasoning words it, and the text."""
    if results := pending_results(chat):
        return dice.choice(("I can answer now.", "That is all I need.")), " ".join(map(_from_result, results))
    if match := _COUNT.search(asked):
        first, last = int(match[1] or 1), min(int(match[2]), int(match[1] or 1) + _MAX_COUNT)
        plan = dice.choice(("I will count", "I will go through the numbers"))
        return f"{plan} to {match[2]}.", f"{' '.join(map(str, range(first, last + 1)))}."
    if match := _WORDS.search(asked):
        return "I will write that many words.", " ".join(filler(dice, int(match[1])))
    if match := _ECHO.match(asked):
        return "I will repeat it.", match[1]
    if match := _SUM.search(asked):
        return "I can work that out.", f"{match[1]} {match[2]} {match[3]} is {_arithmetic(*match.groups())}."
    return _from_memory(chat, asked, dice) or _small_talk(asked, dice)


def _arithmetic(left: str, operation: str, right: str) -> int:
    if operation in ("+", "plus"):
        return int(left) + int(right)
    return int(left) - int(right) if operation in ("-", "minus") else int(left) * int(right)


def _from_result(result: ChatMessage) -> str:
    """A sentence out of a tool's output: a weather report where it looks like one, else the output itself."""
    output = (result.content or "").strip()
    subject = _subject(result.call)
    try:
        report = decode(output)
    except ValueError:
        report = None
    if isinstance(report, dict) and {"temp_c", "sky"} <= report.keys():
        return f"It is {report['sky']} and {report['temp_c']} degrees{f' in {subject}' if subject else ''}."
    name = result.call.name if result.call else "tool"
    return f"The {name} says{f' about {subject}' if subject else ''}: {output[:2000]}"


def _subject(call: Call | None) -> str:
    if call is None or call.custom:
        return call.arguments if call else ""
    values = decode(call.arguments).values()
    return next((value for value in values if isinstance(value, str)), "")


def facts(messages: Iterable[ChatMessage]) -> dict[str, str]:
    """Everything the user said about what is what; a later word wins."""
    told: dict[str, str] = {}
    for message in messages:
        if message.role == "user":
            told |= {_topic(match[1], match[2]): match[3] for match in _FACT.finditer(message.content or "")}
    return told


def _topic(whose: str, what: str) -> str:
    return f"{whose.lower()} {what.lower().removeprefix('favourite ').removeprefix('favorite ')}"


def _from_memory(chat: Chat, asked: str, dice: Random) -> tuple[str, str] | None:
    known = facts(chat.messages)
    if match := _QUESTION.search(asked):
        value = known.get(_topic(match[1], match[2]))
        subject = f"{'your' if match[1].lower() == 'my' else 'the'} {match[2].lower()}"
        if value is None:
            return "I was never told that.", f"I do not know {subject}; you have not told me."
        text = dice.choice((f"{subject.capitalize()} is {value}.", f"You told me that {subject} is {value}."))
        return f"The user said {value} before.", text
    if match := _FACT.search(asked):
        if match[2].lower() == "name":
            text = dice.choice((f"Nice to meet you, {match[3]}!", f"Hello {match[3]}, good to meet you!"))
            return f"The user is called {match[3]}.", text
        subject = f"{'your' if match[1].lower() == 'my' else 'the'} {match[2].lower()}"
        verb = dice.choice(("I will remember that", "Noted:"))
        return "I will remember it.", f"{verb} {subject} is {match[3]}."
    users = [message.content or "" for message in chat.messages if message.role == "user"]
    if len(users) > 1 and _FIRST.search(asked):
        return "I will look back.", f'You began with "{_quote(users[0], 20)}".'
    return None


def _small_talk(asked: str, dice: Random) -> tuple[str, str]:
    if _GREETING.match(asked):
        opening = dice.choice(("Hello!", "Hi there!", "Good to hear from you!"))
        offer = dice.choice(("How can I help you today?", "What would you like to talk about?", "What can I do?"))
        return dice.choice(("I will greet back.", "A greeting asks for one in return.")), f"{opening} {offer}"
    words = asked.split()
    opening = dice.choice(("You asked about", "Let me think about", "Here is what I make of", "A short answer to"))
    body = " ".join(dice.sample(_SENTENCES, dice.randint(2, 4)))
    count = f"That was {_counted(len(words), 'word')}, the longest of them {max(words, key=len)[:40]}."
    plan = dice.choice(("I will say what I can.", "I will answer shortly."))
    return plan, f'{opening} "{_quote(asked, 12)}". {body} {count}'


def filler(dice: Random, count: int) -> list[str]:
    """That many words which say nothing, from a tale in an order of its own."""
    tale = " ".join(dice.sample(_SENTENCES, len(_SENTENCES))).split()
    return [tale[number % len(tale)] for number in range(count)]
