"""The placed step as a Chrome trace (chrome://tracing, Perfetto): a process a rank, a track a stream and thread."""

from measures import label

HOST_TRACKS = 1000


def event(rank, track, name, begin, end, **arguments):
    return {"ph": "X", "pid": rank, "tid": track, "name": name, "ts": round(begin, 3), "dur": round(end - begin, 3),
            "args": arguments}


def name_of_track(rank, track, name):
    return {"ph": "M", "name": "thread_name", "pid": rank, "tid": track, "args": {"name": name}}


def events_of(step):
    """The events of one rank, from the step's beginning."""
    tracks = {}
    for work in step.work:
        record, prediction = work.record, work.prediction
        tracks[record["stream"]] = f"stream {record['stream']}"
        yield event(step.rank, record["stream"], label(record), work.begin - step.begin, work.end - step.begin,
                    kind=record["kind"], bound=prediction.bound, site=record.get("site", ""),
                    low_us=round(prediction.low, 3), high_us=round(prediction.high, 3), bytes=prediction.bytes,
                    waited_for_ranks_us=round(work.waited, 3))
    for entry in step.calls:
        record = entry.node.record
        track = HOST_TRACKS + record["thread"]
        tracks[track] = f"host thread {record['thread']}"
        if entry.end > entry.begin:
            yield event(step.rank, track, record["name"], entry.begin - step.begin, entry.end - step.begin,
                        kind=record["kind"], site=record.get("site", ""), waited_us=round(entry.waited, 3))
    yield {"ph": "M", "name": "process_name", "pid": step.rank, "args": {"name": f"rank {step.rank}"}}
    for track, name in tracks.items():
        yield name_of_track(step.rank, track, name)


def trace(result):
    """The document of all ranks."""
    return {"traceEvents": [event for step in result.steps["expected"] for event in events_of(step)],
            "displayTimeUnit": "ms"}
