"""Reads a trace by Perfetto's own schema (the package `perfetto`) and prints what is in it as one JSON object.

Fails when there is a field that the schema does not know, an event of a track that was not described before it, a name
that was not interned, a slice that ends before it begins or does not end, or time that runs back on a track.
"""
import json
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

trace = schema.Trace()
trace.ParseFromString(open(sys.argv[1], "rb").read())


def known(message):
    """Every field of it, and of what is in it, is in the schema."""
    assert len(UnknownFieldSet(message)) == 0, message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in value if field.is_repeated else [value]:
                known(one)


processes, tracks, names = {}, {}, {}
last, open_slices, slices, counters = {}, {}, {}, {}
Event = schema.TrackEvent
for number, packet in enumerate(trace.packet):
    known(packet)
    assert packet.trusted_packet_sequence_id == 1
    flags = packet.sequence_flags
    assert flags == (packet.SEQ_INCREMENTAL_STATE_CLEARED if number == 0 else packet.SEQ_NEEDS_INCREMENTAL_STATE)
    for name in packet.interned_data.event_names:
        assert name.iid not in names
        names[name.iid] = name.name
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        if track.HasField("process"):
            processes[track.uuid] = track.process.process_name
        else:
            assert track.uuid not in tracks and track.uuid not in processes
            counter = track.counter.unit if track.HasField("counter") else None
            tracks[track.uuid] = (processes[track.parent_uuid], track.name, counter)
    if packet.HasField("track_event"):
        event, at = packet.track_event, packet.timestamp
        track = tracks[event.track_uuid]
        assert at >= last.get(event.track_uuid, 0), (track, at, last[event.track_uuid])
        last[event.track_uuid] = at
        if event.type == Event.TYPE_COUNTER:
            assert track[2] is not None
            counters.setdefault(track[0], {})[track[1]] = event.counter_value
        elif event.type == Event.TYPE_SLICE_BEGIN:
            assert track[2] is None and event.track_uuid not in open_slices
            open_slices[event.track_uuid] = names[event.name_iid]
        else:
            assert event.type == Event.TYPE_SLICE_END
            name = open_slices.pop(event.track_uuid)
            slices.setdefault(track[0], {}).setdefault(track[1], {}).setdefault(name, 0)
            slices[track[0]][track[1]][name] += 1
assert not open_slices
print(json.dumps({"slices": slices, "counters": counters, "processes": sorted(processes.values())}))
