import pytest

from shared.drafts import Draft, is_blank_message, starting
from shared.texts import Stage, Text
from shared.upstream_events import TextKind
from wire import Wire, call, message, reasoning, summed, text_part, thought

LOGPROB = {"token": "A", "logprob": -0.1, "bytes": [65], "top_logprobs": []}
URL = {"type": "url_citation", "url": "https://example.org"}


def draft(item_type: str, *texts: tuple[TextKind, int, str], **known: object) -> Draft:
    made = Draft(item_type, "x_1", {"id": "x_1", "type": item_type, **known} if known else {})
    for kind, number, fragment in texts:
        made.add(kind, number, 0).append(fragment, None)
        made.settle(kind.field, gaps=True)
    return made


THOUGHT = (TextKind.REASONING_TEXT, 0, "a")
SUMMARY = (TextKind.SUMMARY_TEXT, 0, "s")
SNAPSHOT = {"summary": [], "content": None, "encrypted_content": None, "status": "in_progress"}

#: Presence by field: what done says, what the deltas gave, what added said -> what stands.
PRESENCE: dict[str, tuple[Draft, Wire, Wire]] = {
    "content: done": (
        draft("reasoning", THOUGHT),
        {"content": [thought("b")]},
        {"content": [thought("b")], "summary": []},
    ),
    "content: done's []": (draft("reasoning", THOUGHT), {"content": []}, {"content": [], "summary": []}),
    "content: done's null": (draft("reasoning", THOUGHT), {"content": None}, {"content": None, "summary": []}),
    "content: deltas": (
        draft("reasoning", THOUGHT, content=None),
        {"x": 1},
        {"content": [thought("a")], "summary": [], "x": 1},
    ),
    "content: added": (draft("reasoning", content=None), {"x": 1}, {"content": None, "summary": [], "x": 1}),
    "content: nobody": (draft("reasoning"), {"x": 1}, {"summary": [], "x": 1}),
    "summary: done": (draft("reasoning", SUMMARY), {"summary": [summed("t")]}, {"summary": [summed("t")]}),
    "summary: done's []": (draft("reasoning", SUMMARY), {"summary": []}, {"summary": []}),
    "summary: done's null": (draft("reasoning", SUMMARY), {"summary": None}, {"summary": None}),
    "summary: deltas": (draft("reasoning", SUMMARY, summary=[]), {"x": 1}, {"summary": [summed("s")], "x": 1}),
    "summary never feeds content": (draft("reasoning", SUMMARY), {"x": 1}, {"summary": [summed("s")], "x": 1}),
    "encrypted_content: done": (
        draft("reasoning", encrypted_content="a"),
        {"encrypted_content": "B="},
        {"encrypted_content": "B=", "summary": []},
    ),
    "encrypted_content: done's null": (
        draft("reasoning", encrypted_content="a"),
        {"encrypted_content": None},
        {"encrypted_content": None, "summary": []},
    ),
    "encrypted_content: added": (
        draft("reasoning", encrypted_content="a"),
        {"x": 1},
        {"encrypted_content": "a", "summary": [], "x": 1},
    ),
    "status: done": (
        draft("reasoning", status="in_progress"),
        {"status": "incomplete"},
        {"status": "incomplete", "summary": []},
    ),
    "status: done's null": (
        draft("reasoning", status="in_progress"),
        {"status": None},
        {"status": None, "summary": []},
    ),
    "status: added had one": (
        draft("reasoning", status="in_progress"),
        {"x": 1},
        {"status": "completed", "summary": [], "x": 1},
    ),
    "status: nobody": (draft("reasoning"), {"x": 1}, {"summary": [], "x": 1}),
    "unknown fields: done, else added": (
        draft("reasoning", a=1, b=2),
        {"a": None, "c": []},
        {"a": None, "b": 2, "c": [], "summary": []},
    ),
    "custom call: no status is invented": (
        draft("custom_tool_call", (TextKind.INPUT, 0, "cats"), call_id="c", name="run"),
        {"x": 1},
        {"call_id": "c", "name": "run", "input": "cats", "x": 1},
    ),
    "opaque: verbatim": (draft("acme:x", a=1, content=[]), {"content": None}, {"a": 1, "content": None}),
}


@pytest.mark.parametrize(("arriving", "fields", "item"), PRESENCE.values(), ids=PRESENCE.keys())
def test_presence(arriving: Draft, fields: Wire, item: Wire) -> None:
    assert arriving.finished(fields, "completed") == {"id": "x_1", "type": arriving.type, **item}


def test_the_id_is_the_first_one() -> None:
    assert draft("reasoning").finished(reasoning("rs_9"), "completed")["id"] == "x_1"


@pytest.mark.parametrize("field", ["name", "arguments"])
@pytest.mark.parametrize("empty", ["", None])
def test_a_calls_empty_fields_fall_back(field: str, empty: str | None) -> None:
    arriving = draft("function_call", (TextKind.ARGUMENTS, 0, "{}"), call_id="call_1", name="add")
    assert arriving.finished({**call("x_1", "{}"), field: empty}, "completed") == call("x_1", "{}")


def test_a_call_id_never_changes() -> None:
    arriving = draft("function_call", call_id="call_1", name="add")
    assert arriving.finished(call("x_1", "{}", call_id="call_2"), "completed")["call_id"] == "call_1"


@pytest.mark.parametrize("arguments", ["", '{"a', "{}", " "])
def test_arguments_are_never_repaired(arguments: str) -> None:
    arriving = draft("function_call", (TextKind.ARGUMENTS, 0, arguments), call_id="call_1", name="add")
    assert arriving.finished({}, "incomplete") == call("x_1", arguments, status="incomplete")


@pytest.mark.parametrize("left_empty", [{}, {"logprobs": []}, {"logprobs": None}])
def test_what_streamed_beside_a_text_fills_its_part(left_empty: Wire) -> None:
    arriving = draft("message", (TextKind.OUTPUT_TEXT, 0, "A"))
    arriving.texts[0].logprobs.append(LOGPROB)
    arriving.texts[0].annotations.append(URL)
    done = {**message("x_1", ""), "content": [{**text_part("A"), **left_empty}]}
    part = {**text_part("A"), "annotations": [URL], "logprobs": [LOGPROB]}
    assert arriving.finished(done, "completed") == {**message("x_1", ""), "content": [part]}


def test_what_done_says_beside_a_text_wins() -> None:
    arriving = draft("message", (TextKind.OUTPUT_TEXT, 0, "A"))
    arriving.texts[0].logprobs.append(LOGPROB)
    arriving.texts[0].annotations.append(URL)
    part = {**text_part("A"), "annotations": [{"type": "file_path"}], "logprobs": [{"token": "B"}]}
    done = {**message("x_1", ""), "content": [part]}
    assert arriving.finished(done, "completed") == done


@pytest.mark.parametrize(
    ("arriving", "opening"),
    [
        (draft("message"), {"role": "assistant", "status": "in_progress", "content": []}),
        (
            draft("message", role="assistant", phase="commentary", content=[text_part("A")], status="completed"),
            {"role": "assistant", "phase": "commentary", "status": "in_progress", "content": []},
        ),
        (draft("reasoning"), {"summary": []}),
        (draft("reasoning", **SNAPSHOT), SNAPSHOT),
        (
            draft("reasoning", content=[thought("a")], summary=[summed("s")], status=None, encrypted_content="Q"),
            {"content": [], "summary": [], "status": None, "encrypted_content": "Q"},
        ),
        (
            draft("function_call", call_id="c", name="add", arguments="{}", caller=None),
            {"call_id": "c", "name": "add", "arguments": "", "caller": None, "status": "in_progress"},
        ),
        (draft("function_call"), {"call_id": "x_1", "name": "", "arguments": "", "status": "in_progress"}),
        (draft("custom_tool_call", call_id="c", name="run"), {"call_id": "c", "name": "run", "input": ""}),
        (draft("acme:x", status="done", q=[1]), {"status": "in_progress", "q": [1]}),
        (draft("acme:x", status=None, q=None), {"status": None, "q": None}),
    ],
)
def test_opening(arriving: Draft, opening: Wire) -> None:
    assert arriving.opening() == {"id": "x_1", "type": arriving.type, **opening}


def test_starting_leaves_out_what_grows() -> None:
    assert starting(call("fc_1", "{}", caller=None)) == {
        "id": "fc_1",
        "type": "function_call",
        "call_id": "call_1",
        "name": "add",
        "caller": None,
    }
    opaque = {"id": "s_1", "type": "acme:x", "status": "completed", "content": 5, "arguments": {}}
    assert starting(opaque) == opaque


def test_texts_get_their_places_in_order() -> None:
    arriving = Draft("reasoning", "rs_1")
    two, three, zero = (arriving.add(TextKind.REASONING_TEXT, number, 0) for number in (2, 3, 0))
    assert arriving.settle("content", gaps=False) == [zero]
    assert arriving.settle("content", gaps=True) == [two, three]
    assert [(text.number, text.position) for text in (zero, two, three)] == [(0, 0), (2, 1), (3, 2)]


@pytest.mark.parametrize(("number", "items_before", "settled"), [(0, 0, 1), (1, 0, 0), (1, 1, 1), (2, 1, 0), (2, 2, 1)])
def test_a_counter_that_ran_on_from_earlier_items(number: int, items_before: int, settled: int) -> None:
    arriving = Draft("message", "msg_1")
    arriving.add(TextKind.OUTPUT_TEXT, number, items_before)
    assert len(arriving.settle("content", gaps=False)) == settled


def test_a_text_without_number_is_the_only_open_one() -> None:
    arriving = Draft("reasoning", "rs_1")
    assert arriving.find(TextKind.REASONING_TEXT, None) is None
    first = arriving.add(TextKind.REASONING_TEXT, None, 0)
    assert arriving.find(TextKind.REASONING_TEXT, None) is first
    assert arriving.find(TextKind.SUMMARY_TEXT, None) is None
    first.stage = Stage.CLOSED
    assert arriving.find(TextKind.REASONING_TEXT, None) is None
    second = arriving.add(TextKind.REASONING_TEXT, None, 0)
    assert (first.number, second.number) == (0, 1)
    arriving.add(TextKind.REASONING_TEXT, 2, 0)
    with pytest.raises(LookupError):
        arriving.find(TextKind.REASONING_TEXT, None)


@pytest.mark.parametrize(
    ("deltas", "blank"),
    [([], True), (["", " "], True), (["\n\n", "\t\u00a0\u3000"], True), ([" ", "x", " "], False), (["\u200b"], False)],
)
def test_blank(deltas: list[str], blank: bool) -> None:
    text = Text(TextKind.OUTPUT_TEXT, 0)
    for delta in deltas:
        text.append(delta, None)
    assert text.blank is blank
    assert is_blank_message({"type": "message", "content": [text.part()]}) is blank


def test_size_is_bytes_however_cut_and_replaced() -> None:
    text = Text(TextKind.OUTPUT_TEXT, 0)
    for delta in ("a", "é", "北京"):
        text.append(delta, None)
    assert text.size == len("aé北京".encode())
    text.replace("é")
    assert (text.size, text.text) == (2, "é")
