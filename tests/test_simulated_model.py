from typing import Any

import pytest

from cli.simulated_calls import choose_calls, example_object, instance
from cli.simulated_model import Generation, Sampling, generate
from cli.simulated_prompt import Chat, Tool, build_chat
from cli.simulated_tokens import Call, Kind, tokenise
from shared.json_codec import Wire, decode

GREEDY = Sampling(max_tokens=4000, temperature=0)
WEATHER: Wire = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def user(text: str) -> Wire:
    return {"role": "user", "content": text}


def thought(text: str, **fields: Any) -> Wire:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}], **fields}


def answered(text: str, status: str = "completed") -> Wire:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "id": "msg_1", "status": status, "content": content}


def chat(items: str | list[Wire], *, tools: tuple[Wire, ...] = (), thinking: bool = True) -> Chat:
    return build_chat(items, model="simulated", instructions=None, tools=tools, thinking=thinking)


def part(generation: Generation, kind: Kind) -> str:
    return "".join(segment.text for segment in generation.segments if segment.kind is kind)


def text_of(items: str | list[Wire], sampling: Sampling = GREEDY, **about: Any) -> str:
    return part(generate(chat(items, **about), sampling), Kind.TEXT).strip()


def reasoning_of(items: str | list[Wire]) -> str:
    return part(generate(chat(items), GREEDY), Kind.REASONING)


def calls_of(items: str | list[Wire], *tools: Wire, **sampling: Any) -> list[tuple[str, str]]:
    generation = generate(chat(items, tools=tools), Sampling(max_tokens=4000, temperature=0, **sampling))
    opened = [segment.call for segment in generation.segments if segment.kind is Kind.CALL_OPEN]
    return [(call.name, call.arguments) for call in opened if call]


@pytest.mark.parametrize(
    "text",
    ["", "a b  c\t\n\n d", "<think>x</think>", '{"a": [1, "é"]}', "👩‍👩‍👧 naïve_name—ok", "x" * 100, "\r\n\u2028 \x00"],
)
def test_tokens_join_to_their_text(text: str) -> None:
    assert "".join(tokenise(text)) == text


# --- what it says -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param("Count to 5.", "1 2 3 4 5.", id="count"),
        pytest.param("Please count from 3 to 6", "3 4 5 6.", id="count from"),
        pytest.param("Say good night", "good night", id="echo"),
        pytest.param("What is 17 * 3?", "17 * 3 is 51.", id="product"),
        pytest.param("2 plus 2", "2 plus 2 is 4.", id="sum"),
    ],
)
def test_skills(items: str, expected: str) -> None:
    assert text_of(items) == expected


@pytest.mark.parametrize(
    ("told", "asked", "value"),
    [
        ("My name is Cleo.", "What is my name?", "Cleo"),
        ("My color is red.", "What is my color?", "red"),
        ("My favourite color is blue.", "What's my favorite color?", "blue"),
        ("The code word is heron.", "What was the code word?", "heron"),
    ],
)
def test_recalls_what_it_was_told(told: str, asked: str, value: str) -> None:
    items = [user(told), answered("Fine."), user("Hello"), answered("Hi."), user(asked)]
    assert value in text_of(items)
    assert value in reasoning_of(items)
    assert value not in text_of(items[1:])


def test_a_later_word_wins() -> None:
    assert "Dan" in text_of([user("My name is Cleo."), user("My name is Dan."), user("What is my name?")])


def test_its_reasoning_counts_and_quotes_what_the_input_holds() -> None:
    items = [
        user("Plant a tree."),
        thought("\nAn oak would be best.\n"),
        answered("Done."),
        user("And water it."),
        thought("\nOne bucket.\n"),
        answered("Done too."),
        user("What did I ask first?"),
    ]
    reasoning = reasoning_of(items)
    assert "2 earlier turns and 2 reasoning items" in reasoning
    assert all(f'"{quote}"' in reasoning for quote in ("Plant a tree", "An oak would be best", "One bucket"))
    assert "0 reasoning items" in reasoning_of([item for item in items if item.get("type") != "reasoning"])
    assert "Plant a tree" in text_of(items)
    assert "see" not in reasoning_of("Hello there, tree.").split("tree")[0]


def test_different_prompts_give_different_texts() -> None:
    subjects = ["sea", "entropy", "bread", "Paris", "clocks", "love", "tax", "rust", "owls", "jazz"]
    assert len({text_of(f"Tell me about {subject}") for subject in subjects}) == len(subjects)


# --- the same every time ----------------------------------------------------------------------------------------------

PROMPTS = ["Hello", "Tell me about the sea", "Count to 30.", [user("My name is Zoe."), thought("x"), user("Why?")]]


@pytest.mark.parametrize("items", PROMPTS, ids=str)
@pytest.mark.parametrize("how", [{"temperature": 0}, {"seed": 7}], ids=str)
def test_same_seed_same_tokens(items: Any, how: Wire) -> None:
    assert generate(chat(items), Sampling(900, entropy=1, **how)) == generate(
        chat(items), Sampling(900, entropy=2, **how)
    )


def test_without_a_seed_the_wording_varies() -> None:
    texts = {generate(chat("Tell me about the sea"), Sampling(900, entropy=number)).text for number in range(20)}
    assert len(texts) > 15
    assert len({generate(chat("Count to 3."), Sampling(900, seed=number)).text for number in range(20)}) > 5


@pytest.mark.parametrize("items", [*PROMPTS, "What is the weather in Paris and Rome?"], ids=str)
def test_every_limit_cuts_the_same_tokens(items: Any) -> None:
    whole = generate(chat(items, tools=(WEATHER,)), GREEDY)
    tokens = [token for segment in whole.segments for token in segment.tokens]
    assert not whole.truncated
    assert len(tokens) == whole.tokens
    for limit in range(1, len(tokens) + 1):
        cut = generate(chat(items, tools=(WEATHER,)), Sampling(limit, temperature=0))
        assert [token for segment in cut.segments for token in segment.tokens] == tokens[:limit]
        assert cut.tokens == limit
        assert cut.truncated == (limit < len(tokens))


def test_without_an_end_it_fills_the_limit() -> None:
    generation = generate(chat("Hello"), Sampling(5000, temperature=0, ignore_eos=True))
    assert (generation.tokens, generation.truncated) == (5000, True)
    assert generation.segments[-1].kind is Kind.TEXT


@pytest.mark.parametrize(
    ("stop", "end"), [((" 5",), " 4"), (("nothing", "4", "3 4"), "2 "), ((" 20.",), " 19"), (("zzz",), " 20.")], ids=str
)
def test_stop_strings(stop: tuple[str, ...], end: str) -> None:
    generation = generate(chat("Count from 2 to 20", thinking=False), Sampling(900, temperature=0, stop=stop))
    assert generation.text.endswith(end)
    assert not generation.truncated
    assert not any(word in generation.text for word in stop)


# --- continuing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(900, seed=3)], ids=["greedy", "seeded"])
@pytest.mark.parametrize("thinking", [True, False], ids=["thinking", "not thinking"])
@pytest.mark.parametrize("ask", ["Tell me about the sea", "Count to 12.", "My name is Cleo."])
def test_a_message_cut_anywhere_is_continued_as_if_it_had_not_been(
    ask: str, *, thinking: bool, sampling: Sampling
) -> None:
    whole = generate(chat(ask, thinking=thinking), sampling)
    reasoning, text = part(whole, Kind.REASONING), part(whole, Kind.TEXT)
    before = [user(ask), thought(reasoning)] if thinking else [user(ask)]
    tokens = tokenise(text)
    for length in range(1, len(tokens)):
        written = "".join(tokens[:length])
        rest = generate(chat([*before, answered(written, "in_progress")], thinking=thinking), sampling)
        assert not any(segment.kind in (Kind.THINK_OPEN, Kind.THINK_CLOSE) for segment in rest.segments)
        continued = part(rest, Kind.REASONING if thinking else Kind.TEXT)
        assert written.lstrip("\n") + continued == text.lstrip("\n")


def test_finished_reasoning_is_followed_by_its_answer_or_call() -> None:
    for ask, tools in (("Tell me about the sea", ()), ("What is the weather in Oslo?", (WEATHER,))):
        whole = generate(chat(ask, tools=tools), Sampling(900, seed=3))
        last = thought(part(whole, Kind.REASONING), status="in_progress")
        rest = generate(chat([user(ask), last], tools=tools), Sampling(900, seed=3))
        assert part(rest, Kind.REASONING) == part(whole, Kind.TEXT).lstrip("\n")
        assert [segment.call for segment in rest.segments if segment.call] == [s.call for s in whole.segments if s.call]


def test_a_message_it_would_never_have_written_goes_on_somehow() -> None:
    rest = generate(chat([user("Hello"), answered("Nice to meet", "incomplete")]), GREEDY)
    assert [segment.kind for segment in rest.segments] == [Kind.REASONING, Kind.END]
    assert part(rest, Kind.REASONING).startswith(" and so on")


# --- tools ------------------------------------------------------------------------------------------------------------

SEARCH: Wire = {"type": "function", "name": "web_search", "parameters": {"properties": {"query": {"type": "string"}}}}
FILES: Wire = {"type": "function", "name": "file_search", "parameters": {"properties": {"query": {"type": "string"}}}}
RUN: Wire = {"type": "custom", "name": "run"}
BARE: Wire = {"type": "function", "name": "now"}


@pytest.mark.parametrize(
    ("asked", "tools", "expected"),
    [
        pytest.param("What is the weather in Paris?", [WEATHER], [("get_weather", '{"city": "Paris"}')], id="by words"),
        pytest.param(
            "What is the weather in Paris, Rome and Oslo?",
            [WEATHER],
            [("get_weather", f'{{"city": "{city}"}}') for city in ("Paris", "Rome", "Oslo")],
            id="three places",
        ),
        pytest.param(
            "Search the web for cats.", [FILES, SEARCH], [("web_search", '{"query": "cats"}')], id="best match"
        ),
        pytest.param("Call run with cats.", [WEATHER, RUN], [("run", "cats")], id="custom, named"),
        pytest.param("Call now", [WEATHER, BARE], [("now", "{}")], id="no parameters"),
        pytest.param("Hello", [WEATHER, RUN], [], id="nothing to call"),
    ],
)
def test_calls_a_tool_when_asked_to(asked: str, tools: list[Wire], expected: list[tuple[str, str]]) -> None:
    assert calls_of(asked, *tools) == expected


def test_forced_calls_and_one_call_only() -> None:
    assert calls_of("Hello", WEATHER, RUN, forced_tool="*") == [("get_weather", '{"city": "Hello"}')]
    assert calls_of("Hello", WEATHER, RUN, forced_tool="run") == [("run", "Hello")]
    assert len(calls_of("What is the weather in Paris and Rome?", WEATHER, parallel_calls=False)) == 1


def test_a_namespaced_tool_is_called_by_its_full_name() -> None:
    namespace = {"type": "namespace", "name": "ns", "tools": [WEATHER]}
    generation = generate(chat("What is the weather in Rome?", tools=(namespace,)), GREEDY)
    assert '"name": "ns__get_weather"' in generation.text
    assert Call("get_weather", '{"city": "Rome"}', namespace="ns") in [segment.call for segment in generation.segments]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param('{"temp_c": 21, "sky": "sunny"}', "It is sunny and 21 degrees in Paris.", id="report"),
        pytest.param("stormy", "The get_weather says about Paris: stormy", id="text"),
        pytest.param([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}], "a\nb", id="parts"),
    ],
)
def test_answers_from_a_tool_output(output: Any, expected: str) -> None:
    items = [
        user("What is the weather in Paris?"),
        {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": '{"city": "Paris"}'},
        {"type": "function_call_output", "call_id": "c", "output": output},
    ]
    assert calls_of(items, WEATHER) == []
    assert expected in text_of(items, tools=(WEATHER,))


def test_an_orphan_output_is_answered_too() -> None:
    assert "rain" in text_of([{"type": "function_call_output", "call_id": "c", "output": "rain"}])


# --- JSON -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "hint", "expected"),
    [
        ({"enum": ["Bob", "Ada"]}, "Give me Ada as JSON.", "Ada"),
        ({"type": "integer", "maximum": 9}, "I am 41", 9),
        ({"type": ["string", "null"]}, "Give me Ada.", "Ada"),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, "", [True, True]),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"const": 5}}}, "", 5),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, "", None),
        ({"properties": {"a": {"type": "object", "properties": {"b": {"type": "number"}}}}}, "7", {"a": {"b": 7}}),
    ],
    ids=str,
)
def test_an_instance_fits_its_schema(schema: Wire, hint: str, expected: object) -> None:
    assert instance(schema, hint) == expected


def test_a_schema_that_holds_itself_ends() -> None:
    schema: Wire = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    assert "next" in decode(example_object("x", schema))


def test_a_json_answer_is_an_object() -> None:
    form = {"type": "json_object"}
    text = part(generate(chat("Give me an example"), Sampling(900, temperature=0, output_format=form)), Kind.TEXT)
    assert text.startswith("{")
    assert decode(text) == {"request": "Give me an example", "words": 4}
    assert example_object('Repeat {"a": 1} please', None) == '{"a": 1}'


def test_choosing_among_no_tools() -> None:
    assert choose_calls("Call run with cats", [], "*") == []
    assert choose_calls("x", [Tool("a", None, None)], None) == []


# --- the prompt -------------------------------------------------------------------------------------------------------


def test_the_template_keeps_all_reasoning() -> None:
    items = [user("Hi"), thought("\nA greeting.\n"), answered("\n\nHello!"), user("Bye")]
    assert chat(items).render() == (
        "<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nA greeting.\n</think>\n\nHello!<|im_end|>\n"
        "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    )
    assert chat("Hi", thinking=False).render().endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_an_unfinished_message_has_no_end_and_unfinished_reasoning_is_closed() -> None:
    message = chat([user("Hi"), thought("A greeting."), answered("Nice to", "in_progress")])
    assert message.render().endswith("<|im_start|>assistant\n<think>\nA greeting.\n</think>\n\nNice to")
    reasoning = chat([user("Hi"), thought("Half a tho", status="in_progress")])
    assert reasoning.render().endswith("<|im_start|>assistant\n<think>\nHalf a tho\n</think>\n\n")
    assert chat([user("Hi"), thought("x", status="completed")]).unfinished is None


def test_what_vllm_loses_is_lost() -> None:
    two = {"type": "reasoning", "summary": [{"text": "s"}], "content": [{"text": "one"}, {"text": "two"}]}
    summary = {"type": "reasoning", "summary": [{"text": "first"}, {"text": "second"}]}
    rendered = chat([user("a"), two, summary, user("b")]).render()
    assert rendered.count("<|im_start|>assistant") == 3
    assert [word in rendered for word in ("one", "two", "first", "second")] == [True, False, True, False]
