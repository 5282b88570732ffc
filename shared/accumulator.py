"""Upstream events in, public events out; at the end, the items. Pure: no clock, no I/O, no logging.

Law: what a subscriber saw in `output_item.done` is what stands in `output`. Public sequence numbers and output indices
are ours, and never change once given. Opening and closing events that the upstream left out are made here, once.

What was decided, where the wire leaves room:
* A slot (`shared/output.py`) holds a `Draft`, then a `Closed` item, then a `Done` one. Public output indices run 0,
  1, 2 … in slot order: an item is announced when every lower slot is; a gap that never fills is closed at the end.
  Whatever is held up is only state: announcing an item shows it as it stands, one delta for all of its text so far.
* The same holds inside an item: a part with a gap below it waits. (vLLM leaves no gaps, so nothing waits there.)
* `output_item.done` is held until a later item shows itself, because vLLM says `completed` before anyone can know that
  the response was cut: the last item of a response that does not complete is `incomplete`, whatever its done said.
* An item that the end finds without its done is `completed` in a completed response, else `incomplete`, wherever it
  stands: half a call must never look whole.
* A message of white space only is not announced; its first visible character announces it. When it ends as white space
  it is dropped, unless the response holds nothing else (vLLM streams one between reasoning and a tool call).
  Until that is known the done of the item before it is held too: it may be the last one after all.
* A call is announced when its name and `call_id` are known: neither may change once it was shown.
* Deltas that one read brings for one text become one, unless they carry logprobs.
* Nulls are facts and stay, on reasoning and calls alike; `shared/item_shape.py` names the two that don't. A stored part
  of output text has `logprobs` only where there are some; its `part.added`, deltas and `text.done` always do.
Which item an event is about, `shared/output.py` decides; how one item comes of its events, `shared/drafts.py`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from shared.announcer import Announcer
from shared.arrivals import Arrivals
from shared.closings import Closings
from shared.drafts import Draft, starting
from shared.events import PublicEvent
from shared.ids import new_item_id
from shared.item_shape import item_id
from shared.json_codec import Wire
from shared.limits import Limits, Meter, json_size
from shared.mirror import Mirror
from shared.normalize import normalize
from shared.output import Closed, Done, Dropped, Slots
from shared.upstream_events import Finished, Place, Skipped, TextDelta, UpstreamEvent


@dataclass(frozen=True, slots=True)
class Ending:
    """How the upstream's response ended: `completed`, `incomplete`, `failed` or `cancelled`.

    `usage` has all its integers. `error` is the upstream's `code` and `type` only, or what `fail` was given.
    """

    status: str
    usage: Wire | None = None
    incomplete_details: Wire | None = None
    error: Wire | None = None
    service_tier: str | None = None
    extras: Wire | None = None


class Accumulator:
    """One response in the making.

    `ending` is None until the terminal event was read, or `fail` called; nothing is read after that. `skipped` counts
    what could not be used, by reason, `repaired` what was made good, by kind. With `mirror`, subscribers see reasoning
    as a summary too (`shared/mirror`). `limits` bound what is kept: `feed` raises `OverLimit` before anything beyond
    them is, and `fail` is to follow.
    """

    def __init__(self, next_sequence_number: int = 0, *, mirror: bool = False, limits: Limits | None = None) -> None:
        self.ending: Ending | None = None
        self.skipped: Counter[str] = Counter()
        self._slots = Slots(Meter(limits))
        self.repaired = self._slots.repaired
        self._mirror = Mirror() if mirror else None
        self._announcer = Announcer(self._slots, next_sequence_number, self._mirror)
        self._closings = Closings(self._slots, self._announcer, self.skipped)
        self._arrivals = Arrivals(self._slots, self._announcer, self._closings, self.skipped)

    @property
    def next_sequence_number(self) -> int:
        """The number that the next public event gets."""
        return self._announcer.next_sequence_number

    @property
    def output(self) -> list[Wire]:
        """The items whose `output_item.done` was given out, by public index. Complete once `ending` is set."""
        return [slot.state.item for slot in self._slots if isinstance(slot.state, Done)]

    @property
    def kept_bytes(self) -> int:
        """How much is kept (`shared/limits`). The upstream's cuts don't matter."""
        return self._slots.meter.total

    def number(self, type: str, body: Wire) -> PublicEvent:  # noqa: A002 - the wire's word
        """Number an event that the turn itself makes: `response.in_progress` and the terminal one."""
        return self._announcer.number(type, body)

    def feed(self, events: Iterable[UpstreamEvent]) -> list[PublicEvent]:
        """Take in the events of one read; give what subscribers are to see, lifecycle and terminal events aside."""
        for event in _merged(events):
            if self.ending is not None:
                break
            self._take(event)
        return self._announcer.said()

    def fail(self, error: Wire | None = None, *, status: str = "failed") -> list[PublicEvent]:
        """No terminal event came, or none is waited for (`status` "cancelled"): close what is open as incomplete."""
        if self.ending is None:
            self._end(Ending(status, error=error), [])
        return self._announcer.said()

    def absorb(self, event: PublicEvent) -> None:
        """Take in an event of the public log: it was given out before, so nothing is held and nothing comes of it."""
        if self._mirror is None or self._mirror.is_upstreams(event):
            self._take(normalize(event.wire()))
        self._announcer.catch_up()
        self._announcer.forget(event.sequence_number + 1)

    def _take(self, event: UpstreamEvent) -> None:
        match event:
            case TextDelta():
                self._arrivals.delta(event)
            case Finished():
                details, tier = event.incomplete_details, event.service_tier
                ending = Ending(event.status, event.usage, details, event.error, tier, event.extras)
                self._end(ending, event.output or [])
            case Skipped():
                if event.counted:
                    self.skipped[event.reason] += 1
            case _:
                self._arrivals.take(event)

    def _end(self, ending: Ending, output: list[Wire | None]) -> None:
        status = "completed" if ending.status == "completed" else "incomplete"
        snapshot = [(position, item) for position, item in enumerate(output) if item is not None]
        if malformed := len(output) - len(snapshot):
            self.skipped["malformed_item"] += malformed
        self._reconcile(snapshot, status)
        for slot in self._slots:
            if isinstance(slot.state, Draft):
                if status == "completed":
                    self.repaired["done_missing"] += 1
                self._closings.close(slot, slot.state, {}, status)
        self._announcer.drop_noise()
        if ending.status != "completed":
            self._cut_last()
        self._announcer.complete_all()
        self.ending = ending

    def _reconcile(self, snapshot: list[tuple[int, Wire]], status: str) -> None:
        """The final snapshot fills in what never streamed. It adds nothing twice and changes nothing that was told."""
        matched = self._slots.matched(snapshot)
        if unmatched := len(snapshot) - len(matched):
            self.skipped["ambiguous"] += unmatched
        for position, item, found in matched:
            slot = found or self._slots.known(item)  # a snapshot may hold an item twice
            if slot is None:
                place = Place(position, item_id(item.get("id")) or new_item_id(item["type"]))
                draft = Draft(item["type"], place.item_id or "", starting(item))
                slot = self._slots.add(item["type"], place, draft, json_size(item))
                self.repaired["only_in_terminal"] += 1
            fields = {key: value for key, value in item.items() if (key, value) != ("status", "in_progress")}
            if isinstance(slot.state, Draft):
                self._closings.close(slot, slot.state, fields, status)
            elif isinstance(slot.state, Closed):
                self._closings.fill(slot, slot.state, fields)
            else:
                self._arrivals.compare(slot, item)

    def _cut_last(self) -> None:
        """A response that did not complete was cut in its last item, whatever the item's done said."""
        kept = [slot for slot in self._slots if not isinstance(slot.state, Dropped)]
        if kept and isinstance(kept[-1].state, Closed):
            state = kept[-1].state
            kept[-1].state = replace(state, item={**state.item, "status": "incomplete"})


def _merged(events: Iterable[UpstreamEvent]) -> Iterator[UpstreamEvent]:
    """The events, with each run of deltas of one text as one; those with logprobs stay apart."""
    run: list[TextDelta] = []
    for event in events:
        if type(event) is TextDelta and event.logprobs is None:
            if run and (event.place != run[0].place or event.kind is not run[0].kind):
                yield _joined(run)
                run = []
            run.append(event)
            continue
        if run:
            yield _joined(run)
            run = []
        yield event
    if run:
        yield _joined(run)


def _joined(run: list[TextDelta]) -> TextDelta:
    return run[0] if len(run) == 1 else run[0]._replace(delta="".join([event.delta for event in run]))
