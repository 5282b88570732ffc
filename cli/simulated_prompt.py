"""From input items to what the model sees: vLLM's conversion to chat messages and a chat template. Pure.

Law: what vLLM loses is lost here too (only the first part of a reasoning item or an assistant message is read), and
consecutive assistant items become one message until a field would be given twice. The template is Qwen3's in a form
that keeps all earlier reasoning.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from cli.simulated_refusal import Refusal, bad_parameter, server_fault
from cli.simulated_schema import HOSTED_ITEMS, is_output_message
from cli.simulated_tokens import END_OF_TURN, Call
from shared.json_codec import Wire, decode, encode

_PART_TYPES = (
    "audio_embeds, audio_url, image_embeds, image_pil, image_url, input_audio, input_image, input_text, output_text, "
    "prompt_embeds, refusal, text, thinking, tool_reference, video_embeds, video_url"
)
_UNFINISHED = ("in_progress", "incomplete")


@dataclass(slots=True)
class ChatMessage:
    """One message of the chat. `call` is the call that a `tool` message answers, where the input holds it."""

    role: str
    content: str | None = None
    reasoning: str | None = None
    calls: list[Call] = field(default_factory=list)
    call: Call | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model is shown. Hosted tools never are."""

    name: str
    description: str | None
    parameters: Wire | None
    custom: bool = False
    namespace: str | None = None

    def call(self, arguments: str) -> Call:
        """A call of this tool."""
        return Call(self.name, arguments, self.custom, self.namespace)


@dataclass(frozen=True, slots=True)
class Chat:
    """A whole prompt. `unfinished` is the assistant message at the end that is to be continued, not a new turn."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[Tool, ...]
    thinking: bool
    unfinished: ChatMessage | None = None

    def render(self) -> str:
        """The prompt as the model gets it."""
        parts = [_system(self.messages, self.tools)]
        rest = self.messages[1:] if self.messages[:1] and self.messages[0].role == "system" else self.messages
        for before, message in pairwise((None, *rest)):
            parts.append(_rendered(message, before) if message else "")
        if rest and rest[-1].role == "tool":
            parts.append(f"{END_OF_TURN}\n")
        parts.append("<|im_start|>assistant\n")
        if self.unfinished is not None:
            parts.append(_assistant(self.unfinished))
        elif not self.thinking:
            parts.append("<think>\n\n</think>\n\n")
        return "".join(parts)


def build_chat(
    items: str | list[Wire], *, model: str, instructions: str | None, tools: Iterable[Wire], thinking: bool
) -> Chat:
    """The chat of a request. Raises `Refusal` for items that vLLM can't read."""
    listed = [{"role": "user", "content": items}] if isinstance(items, str) else items
    messages = [ChatMessage("system", instructions)] if instructions is not None else []
    calls: dict[str, Call] = {}
    for item in listed:
        _append(messages, item, calls, model)
    if not messages:
        raise Refusal("Cannot apply chat template to an empty conversation. Provide at least one message.")
    last = listed[-1] if listed else {}
    continues = last.get("status") in _UNFINISHED and (last.get("type") == "reasoning" or is_output_message(last))
    unfinished = messages.pop() if continues else None
    return Chat(tuple(messages), tuple(_shown(tools)), thinking, unfinished)


def _append(messages: list[ChatMessage], item: Wire, calls: dict[str, Call], model: str) -> None:
    kind = item.get("type")
    if kind in HOSTED_ITEMS:
        raise bad_parameter(f"Unsupported input item type: {kind}", "input")
    if kind == "reasoning":
        _assistant_turn(messages, "reasoning").reasoning = _reasoning_text(item)
    elif kind in ("function_call", "custom_tool_call"):
        call = _read_call(item)
        calls[item["call_id"]] = call
        _assistant_turn(messages, "calls").calls.append(call)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        output = _joined(item["output"], model)
        messages.append(ChatMessage("tool", output, call=calls.get(item["call_id"])))
    elif is_output_message(item):
        _assistant_turn(messages, "content").content = _first_text(item)
    elif item["role"] == "assistant":
        _assistant_turn(messages, "content").content = _joined(item["content"], model)
    else:
        messages.append(ChatMessage(item["role"], _joined(item["content"], model)))


def _assistant_turn(messages: list[ChatMessage], name: str) -> ChatMessage:
    """The assistant message that the next item joins: the last one, unless its field is already taken."""
    last = messages[-1] if messages else None
    if last is None or last.role != "assistant" or (name != "calls" and getattr(last, name) is not None):
        last = ChatMessage("assistant")
        messages.append(last)
    return last


def _reasoning_text(item: Wire) -> str:
    if item.get("encrypted_content"):
        raise bad_parameter("Encrypted content is not supported.", "input")
    parts = item.get("content") or item["summary"]
    return str(parts[0].get("text", "")) if parts else ""


def _first_text(item: Wire) -> str:
    if not item["content"]:
        raise server_fault("list index out of range")
    if item["content"][0]["type"] == "refusal":
        raise server_fault("'ResponseOutputRefusal' object has no attribute 'text'")
    return str(item["content"][0].get("text", ""))


def _joined(content: str | list[Wire], model: str) -> str:
    if isinstance(content, str):
        return content
    for part in content:
        if part.get("type") == "input_image":
            raise Refusal(f"{model} is not a multimodal model")
        if part.get("type") == "input_file":
            message = f"Unsupported chat content part type: 'input_file'. Supported types: {_PART_TYPES}."
            raise bad_parameter(message, "type", "input_file")
    return "\n".join(str(part.get("text", "")) for part in content)


def _read_call(item: Wire) -> Call:
    if item["type"] == "custom_tool_call":
        return Call(item["name"], item["input"], custom=True, namespace=item.get("namespace"))
    try:
        arguments = item["arguments"] if isinstance(decode(item["arguments"]), dict) else "{}"
    except ValueError:
        arguments = "{}"
    return Call(item["name"], arguments, namespace=item.get("namespace"))


def _shown(tools: Iterable[Wire], namespace: str | None = None) -> list[Tool]:
    shown: list[Tool] = []
    for tool in tools:
        if tool["type"] == "namespace":
            shown += _shown(tool.get("tools") or [], tool["name"])
        elif tool["type"] in ("function", "custom"):
            custom = tool["type"] == "custom"
            shown.append(Tool(tool["name"], tool.get("description"), tool.get("parameters"), custom, namespace))
    return shown


# --- the template -----------------------------------------------------------------------------------------------------


def _system(messages: tuple[ChatMessage, ...], tools: tuple[Tool, ...]) -> str:
    first = messages[0].content or "" if messages and messages[0].role == "system" else None
    if not tools:
        return "" if first is None else f"<|im_start|>system\n{first}{END_OF_TURN}\n"
    listed = "".join(
        "\n"
        + encode(
            {
                "type": "function",
                "function": {
                    "name": f"{tool.namespace}__{tool.name}" if tool.namespace else tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
        ).decode()
        for tool in tools
    )
    head = "" if first is None else f"{first}\n\n"
    return (
        f"<|im_start|>system\n{head}# Tools\n\nYou may call functions:\n<tools>{listed}\n</tools>\n\n"
        f'To call one, write <tool_call>\n{{"name": <name>, "arguments": <json>}}\n</tool_call>{END_OF_TURN}\n'
    )


def _rendered(message: ChatMessage, before: ChatMessage | None) -> str:
    after_tool = before is not None and before.role == "tool"
    close = f"{END_OF_TURN}\n" if after_tool and message.role != "tool" else ""
    if message.role == "tool":
        head = "" if after_tool else "<|im_start|>user"
        return f"{head}\n<tool_response>\n{message.content}\n</tool_response>"
    if message.role == "assistant":
        return f"{close}<|im_start|>assistant\n{_assistant(message)}{END_OF_TURN}\n"
    return f"{close}<|im_start|>{message.role}\n{message.content}{END_OF_TURN}\n"


def _assistant(message: ChatMessage) -> str:
    content = message.content or ""
    parts = [content]
    if message.reasoning:
        reasoning = message.reasoning.strip("\n")
        parts = [f"<think>\n{reasoning}\n</think>\n\n", content.lstrip("\n")]
    for number, call in enumerate(message.calls):
        arguments = encode({"input": call.arguments}).decode() if call.custom else call.arguments
        separator = "\n" if number or content else ""
        parts.append(f'{separator}<tool_call>\n{{"name": "{call.full_name}", "arguments": {arguments}}}\n</tool_call>')
    return "".join(parts)
