"""One item as vLLM takes it: every row of the replay table, and every shape that vLLM 0.32 breaks on."""

import copy
from typing import Any

import pytest

from shared.rewrite import answers, asks, upstream_items

Item = dict[str, Any]


def _said(text: str, **more: Any) -> Item:
    return {
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
        **more,
    }


def _thought(text: str, **more: Any) -> Item:
    content = [{"type": "reasoning_text", "text": text}]
    return {"type": "reasoning", "status": "completed", "summary": [], "content": content, **more}


def _asked(content: Any, **more: Any) -> Item:
    return {"type": "message", "role": "user", "content": content, **more}


ROWS: dict[str, tuple[Item, list[Item]]] = {
    # reasoning
    "reasoning as vLLM returned it": (
        {
            "id": "rs_1",
            "summary": [],
            "type": "reasoning",
            "content": [{"text": "\nhm\n", "type": "reasoning_text"}],
            "encrypted_content": None,
            "status": None,
        },
        [_thought("\nhm\n", id="rs_1")],
    ),
    "reasoning: texts joined, summary, blob, marks and unknown fields left behind": (
        {
            "id": "rs_1",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "gist"}],
            "content": [{"type": "reasoning_text", "text": "a"}, {"type": "reasoning_text", "text": "b"}],
            "encrypted_content": "gAAA==",
            "status": "incomplete",
            "_agentic_item_kind": "x",
            "tenant": "t",
        },
        [_thought("a\nb", id="rs_1")],
    ),
    "reasoning without id and summary": (
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "a"}]},
        [_thought("a")],
    ),
    "reasoning: a summary never stands in": (
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "gist"}], "content": None},
        [],
    ),
    "reasoning: empty": ({"type": "reasoning", "id": "rs_1", "summary": [], "content": []}, []),
    "reasoning: empty text": ({"type": "reasoning", "content": [{"type": "reasoning_text", "text": ""}]}, []),
    # messages
    "assistant as vLLM returned it": (
        {
            "id": "msg_1",
            "content": [{"annotations": [{"type": "x"}], "text": "\n\nHi", "type": "output_text", "logprobs": None}],
            "role": "assistant",
            "status": "completed",
            "type": "message",
            "phase": None,
        },
        [_said("\n\nHi", id="msg_1")],
    ),
    "assistant string": ({"role": "assistant", "content": "Hi"}, [_said("Hi")]),
    "assistant phase kept": (
        {"role": "assistant", "content": "Hi", "phase": "commentary"},
        [_said("Hi", phase="commentary")],
    ),
    "assistant phase that vLLM's types refuse": ({"role": "assistant", "content": "Hi", "phase": "x"}, [_said("Hi")]),
    "assistant null status": (
        {"type": "message", "role": "assistant", "status": None, "content": [{"type": "output_text", "text": "Hi"}]},
        [_said("Hi")],
    ),
    "assistant cut: vLLM would go on with it": (
        {"type": "message", "role": "assistant", "status": "incomplete", "content": "Nice to"},
        [_said("Nice to")],
    ),
    "assistant parts joined, refusals as text": (
        {
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": "a"},
                {"type": "refusal", "refusal": "No."},
                {"type": "input_text", "text": "b"},
            ],
        },
        [_said("a\nNo.\nb")],
    ),
    "assistant empty list": ({"type": "message", "role": "assistant", "content": []}, []),
    "assistant empty text": ({"role": "assistant", "content": [{"type": "output_text", "text": ""}]}, []),
    "user string": ({"role": "user", "content": "Hi"}, [_asked("Hi")]),
    "user empty list": ({"role": "user", "content": []}, [_asked("")]),
    "user parts: nulls and hints dropped, other texts as input": (
        {
            "type": "message",
            "id": "msg_1",
            "role": "user",
            "status": None,
            "content": [
                {"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}},
                {"type": "output_text", "text": "b", "annotations": []},
                {"type": "text", "text": "c"},
                {"type": "input_file", "file_id": None, "file_url": "https://x/y"},
            ],
        },
        [
            _asked(
                [
                    {"type": "input_text", "text": "a"},
                    {"type": "input_text", "text": "b"},
                    {"type": "input_text", "text": "c"},
                    {"type": "input_file", "file_url": "https://x/y"},
                ],
                id="msg_1",
            )
        ],
    ),
    "user image: vLLM asks for a detail": (
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:,", "file_id": None}]},
        [_asked([{"type": "input_image", "image_url": "data:,", "detail": "auto"}])],
    ),
    "user image: the caller's detail": (
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:,", "detail": "low"}]},
        [_asked([{"type": "input_image", "image_url": "data:,", "detail": "low"}])],
    ),
    "developer": ({"role": "developer", "content": "Be brief."}, [_asked("Be brief.", role="developer")]),
    "system": ({"role": "system", "content": "Be brief."}, [_asked("Be brief.", role="system")]),
    # calls and outputs
    "function call": (
        {
            "arguments": '{"city": "Paris"}',
            "call_id": "c1",
            "name": "get_weather",
            "type": "function_call",
            "id": "fc_1",
            "async": None,
            "caller": None,
            "namespace": None,
            "status": "completed",
        },
        [
            {
                "type": "function_call",
                "id": "fc_1",
                "status": "completed",
                "call_id": "c1",
                "name": "get_weather",
                "arguments": '{"city": "Paris"}',
            }
        ],
    ),
    "function call: namespace kept, broken arguments never repaired": (
        {"type": "function_call", "call_id": "c1", "name": "add", "namespace": "ns", "arguments": ""},
        [
            {
                "type": "function_call",
                "status": "completed",
                "call_id": "c1",
                "name": "add",
                "namespace": "ns",
                "arguments": "",
            }
        ],
    ),
    "function call output": (
        {"type": "function_call_output", "id": None, "call_id": "c1", "output": "3", "status": None},
        [{"type": "function_call_output", "call_id": "c1", "output": "3"}],
    ),
    "function call output in parts": (
        {
            "type": "function_call_output",
            "id": "fco_1",
            "call_id": "c1",
            "output": [{"type": "input_text", "text": "3"}, {"type": "input_image", "image_url": "data:,"}],
        },
        [
            {
                "type": "function_call_output",
                "id": "fco_1",
                "call_id": "c1",
                "output": [
                    {"type": "input_text", "text": "3"},
                    {"type": "input_image", "image_url": "data:,", "detail": "auto"},
                ],
            }
        ],
    ),
    "function call output in texts: one string, which gpt-oss needs": (
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}],
        },
        [{"type": "function_call_output", "call_id": "c1", "output": "a\nb"}],
    ),
    "function call output in no parts": (
        {"type": "function_call_output", "call_id": "c1", "output": []},
        [{"type": "function_call_output", "call_id": "c1", "output": ""}],
    ),
    "custom tool call": (
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "run", "input": "cats", "namespace": None},
        [
            {
                "type": "custom_tool_call",
                "id": "ctc_1",
                "status": "completed",
                "call_id": "c1",
                "name": "run",
                "input": "cats",
            }
        ],
    ),
    "custom tool call output": (
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "dogs"},
        [{"type": "custom_tool_call_output", "call_id": "c1", "output": "dogs"}],
    ),
    # hosted tools
    "mcp call": (
        {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "roll", "arguments": '{"n":2}', "output": "7"},
        [
            {"type": "function_call", "call_id": "mcp_1", "name": "roll", "arguments": '{"n":2}'},
            {"type": "function_call_output", "call_id": "mcp_1", "output": "7"},
        ],
    ),
    "mcp call that failed": (
        {"type": "mcp_call", "id": "mcp_1", "name": "roll", "arguments": "{}", "output": None, "error": {"code": 3}},
        [
            {"type": "function_call", "call_id": "mcp_1", "name": "roll", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "mcp_1", "output": '{"code":3}'},
        ],
    ),
    "mcp call without an answer": ({"type": "mcp_call", "id": "mcp_1", "name": "roll", "arguments": "{}"}, []),
    "mcp call without a name": ({"type": "mcp_call", "id": "mcp_1", "arguments": "{}", "output": "7"}, []),
    "mcp call without arguments": ({"type": "mcp_call", "id": "mcp_1", "name": "roll", "output": "7"}, []),
    "web search with results": (
        {"type": "web_search_call", "id": "ws_1", "action": {"query": "cats"}, "results": [{"url": "u"}]},
        [
            {"type": "function_call", "call_id": "ws_1", "name": "web_search", "arguments": '{"query":"cats"}'},
            {"type": "function_call_output", "call_id": "ws_1", "output": '[{"url":"u"}]'},
        ],
    ),
    "web search without results": ({"type": "web_search_call", "id": "ws_1", "action": {"query": "cats"}}, []),
    "file search": (
        {"type": "file_search_call", "id": "fs_1", "queries": ["cats"], "results": []},
        [
            {"type": "function_call", "call_id": "fs_1", "name": "file_search", "arguments": '{"queries":["cats"]}'},
            {"type": "function_call_output", "call_id": "fs_1", "output": "[]"},
        ],
    ),
    "code interpreter": (
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1+1", "outputs": [{"type": "logs", "logs": "2"}]},
        [
            {"type": "function_call", "call_id": "ci_1", "name": "code_interpreter", "arguments": '{"code":"1+1"}'},
            {"type": "function_call_output", "call_id": "ci_1", "output": '[{"type":"logs","logs":"2"}]'},
        ],
    ),
    "shell call": (
        {"type": "shell_call", "id": "sh_1", "call_id": "c1", "action": {"commands": ["ls"]}},
        [{"type": "function_call", "call_id": "c1", "name": "shell", "arguments": '{"commands":["ls"]}'}],
    ),
    "shell call output": (
        {"type": "shell_call_output", "call_id": "c1", "output": [{"stdout": "a"}]},
        [{"type": "function_call_output", "call_id": "c1", "output": '[{"stdout":"a"}]'}],
    ),
    "local shell call": (
        {
            "type": "local_shell_call",
            "id": "lsh_1",
            "call_id": "c1",
            "action": {"command": ["ls"]},
            "status": "completed",
        },
        [{"type": "function_call", "call_id": "c1", "name": "local_shell", "arguments": '{"command":["ls"]}'}],
    ),
    "local shell output: its id is the call's": (
        {"type": "local_shell_call_output", "id": "c1", "output": "a"},
        [{"type": "function_call_output", "call_id": "c1", "output": "a"}],
    ),
    "apply patch call": (
        {"type": "apply_patch_call", "call_id": "c1", "operation": {"type": "delete_file", "path": "a"}},
        [
            {
                "type": "function_call",
                "call_id": "c1",
                "name": "apply_patch",
                "arguments": '{"type":"delete_file","path":"a"}',
            }
        ],
    ),
    "apply patch output without text": (
        {"type": "apply_patch_call_output", "call_id": "c1", "output": None, "status": "failed"},
        [{"type": "function_call_output", "call_id": "c1", "output": "failed"}],
    ),
    "hosted call without any id": ({"type": "shell_call", "action": {}}, []),
    **{
        f"left out: {name}": ({"type": name, "id": "x", "call_id": "x", "status": "completed"}, [])
        for name in (
            "mcp_list_tools",
            "mcp_approval_request",
            "mcp_approval_response",
            "image_generation_call",
            "computer_call",
            "computer_call_output",
            "tool_search_call",
            "tool_search_output",
            "additional_tools",
            "configuration_update",
            "program",
            "acme:thing",
        )
    },
}


@pytest.mark.parametrize(("item", "sent"), ROWS.values(), ids=ROWS.keys())
def test_row(item: Item, sent: list[Item]) -> None:
    before = copy.deepcopy(item)
    assert upstream_items(item) == sent
    assert item == before


def test_calls_and_what_answers_them() -> None:
    calls = {item.get("type") for item, _ in ROWS.values() if asks(item)}
    assert calls == {"function_call", "custom_tool_call", "shell_call", "local_shell_call", "apply_patch_call"}
    assert asks({"type": "function_call", "call_id": None}) is None
    assert asks({"type": "shell_call", "id": "c1"}) == "c1"
    assert not asks({"type": "mcp_call", "call_id": "c1"})  # it holds its own answer
    assert not asks({"type": "shell_call_output", "call_id": "c1"})
    answering = {item.get("type") for item, _ in ROWS.values() if answers(item) is not None}
    assert answering == {
        "function_call_output",
        "custom_tool_call_output",
        "shell_call_output",
        "local_shell_call_output",
        "apply_patch_call_output",
    }
    assert answers({"type": "local_shell_call_output", "id": "c1"}) == "c1"
