//! The port's protocol in all interleavings: the real [`Inbound`] and [`Outbound`] over a port whose memory detects
//! races.

use loom::thread;
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::region_table::{PeerTable, RegionTable};
use crate::sync::{fence, Ordering};
use crate::wake::{self, Waker};

use super::{Geometry, Inbound, Outbound, PortMap, Record, RecordKind, ARMED_NEXT};

/// Space for two records of one unit.
const DATA_BYTES: u32 = 64;

fn table() -> PeerTable {
    PeerTable::map(RegionTable::new().unwrap().file()).unwrap()
}

fn port(lengths: u32, shared_receive: bool) -> Arc<PortMap> {
    Arc::new(PortMap::modelled(Geometry {
        lengths,
        data_bytes: DATA_BYTES,
        shared_receive,
    }))
}

/// Sends a message all of whose bytes are its number, if there is space.
fn send(outbound: &mut Outbound, number: u32, bytes: u32) -> bool {
    if !matches!(outbound.room(bytes.into()), Ok(Some(room)) if room >= u64::from(bytes)) {
        return false;
    }
    let record = Record {
        kind: RecordKind::Send,
        solicited: false,
        first: true,
        more: false,
        bytes,
        total: bytes,
        immediate: number,
    };
    let waker = outbound.publish(record, |pieces| {
        for (place, length) in pieces {
            // SAFETY: `publish` hands out bytes that only the sender accesses.
            unsafe { place.write_bytes(number as u8, length) };
        }
    });
    if let Some(waker) = waker {
        waker.wake();
    }
    true
}

/// Receives the number of the next message, all of whose bytes must be that number.
fn receive(inbound: &mut Inbound) -> Option<u32> {
    let record = inbound.peek().unwrap()?;
    inbound.read(&record, |pieces| {
        for (place, length) in pieces {
            // SAFETY: the bytes of a published record do not change until it is taken.
            let bytes = unsafe { std::slice::from_raw_parts(place, length) };
            assert!(bytes
                .iter()
                .all(|&byte| u32::from(byte) == record.immediate));
        }
    });
    inbound.take(&record);
    Some(record.immediate)
}

/// Messages arrive complete and in order, and no unit is overwritten while it is being read: with one message that
/// wraps around the end of the ring, and more messages than fit.
#[test]
fn loom_port_records() {
    let table = table();
    loom::model(move || {
        let port = port(1, true);
        let mut inbound = Inbound::new(Arc::clone(&port), 7);
        let mut outbound = Outbound::new(port, table.clone(), None);
        let sender = thread::spawn(move || {
            let lengths = [16, 32, 0];
            let sent = (1..).zip(lengths);
            sent.take_while(|&(number, bytes)| send(&mut outbound, number, bytes))
                .count() as u32
        });
        let mut seen = Vec::new();
        for _ in 0..2 {
            seen.extend(receive(&mut inbound));
        }
        let sent = sender.join().unwrap();
        seen.extend(std::iter::from_fn(|| receive(&mut inbound)));
        assert!(sent >= 1);
        assert!(seen.into_iter().eq(1..=sent));
    });
}

/// A sender that finds a RECEIVE finds the length of that one, even if the entry held another number's before.
#[test]
fn loom_port_receives() {
    let table = table();
    loom::model(move || {
        let port = port(1, false);
        let mut inbound = Inbound::new(Arc::clone(&port), 7);
        let mut outbound = Outbound::new(Arc::clone(&port), table.clone(), None);
        let sender = thread::spawn(move || {
            let mut sent = 0;
            for _ in 0..2 {
                if outbound.receiver_ready().unwrap() {
                    assert_eq!(outbound.receive_length(), 100 + u64::from(sent));
                    assert!(send(&mut outbound, sent, 0));
                    sent += 1;
                }
            }
            sent
        });
        port.announce_receive(0, 100);
        let first = receive(&mut inbound);
        if first.is_some() {
            port.announce_receive(1, 101);
        }
        let sent = sender.join().unwrap();
        let all = first.into_iter().chain(receive(&mut inbound));
        assert!(all.eq(0..sent));
    });
}

/// A receiver that arms the port, polls once more and finds nothing is woken by the message that it did not see.
#[test]
fn loom_port_wake() {
    let table = table();
    let (end, theirs) = wake::pair().unwrap();
    let waker = Arc::new(Waker::new(theirs.into()).unwrap());
    loom::model(move || {
        assert!(end.drain());
        let port = port(1, true);
        let mut inbound = Inbound::new(Arc::clone(&port), 7);
        let wake = Some(Arc::clone(&waker));
        let mut outbound = Outbound::new(Arc::clone(&port), table.clone(), wake);
        let sender = thread::spawn(move || assert!(send(&mut outbound, 1, 16)));
        port.arm(ARMED_NEXT);
        fence(Ordering::SeqCst);
        let seen = receive(&mut inbound);
        sender.join().unwrap();
        assert!(seen.is_some() || wake::holds_plain(end.as_fd()).unwrap());
        assert_eq!(seen.or_else(|| receive(&mut inbound)), Some(1));
    });
}
