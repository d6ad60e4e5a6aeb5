//! Tests of a connection event by event; both ends together are tested by `tests/hunt`.

mod ends;
mod paths;
mod receiving;
mod sending;

use dunlin_verbs::{RemoteAddress, RemoteKey};

use super::*;
use crate::ack::{AckedNumber, MAX_ACK_BYTES};
use crate::chunking::{ChunkingParameters, OnLoss, RttBased};
use crate::congestion::{FixedWindow, HardwareControl};
use crate::number::{SendNumber, WriteLayout};
use crate::reliability::{Hardware, Selective, SelectiveParameters};
use crate::round_trip::ByAcknowledgement;

const KB: u32 = 1024;
const PLACE: RemoteAddress = RemoteAddress {
    address: 1 << 20,
    key: RemoteKey(9),
};

fn modules(window_bytes: u64, chunk_bytes: u32) -> Modules {
    Modules {
        chunking: Box::new(
            RttBased::new(ChunkingParameters {
                max_bytes: chunk_bytes,
                first_bytes: chunk_bytes.into(),
                ..ChunkingParameters::PRODUCTION
            })
            .unwrap(),
        ),
        round_trip: Box::new(ByAcknowledgement),
        reliability: Box::new(Selective::new(SelectiveParameters::DEFAULT)),
        congestion: Box::new(FixedWindow::new(window_bytes)),
    }
}

fn connection(modules: Modules) -> Connection {
    Connection::new(Config::DEFAULT, modules).unwrap()
}

fn actions(connection: &mut Connection, now_ns: u64) -> Vec<Action> {
    std::iter::from_fn(|| connection.poll(now_ns)).collect()
}

fn posts(connection: &mut Connection, now_ns: u64) -> Vec<WorkRequest> {
    let post = |action| match action {
        Action::Post(work) => Some(work),
        _ => None,
    };
    actions(connection, now_ns)
        .into_iter()
        .filter_map(post)
        .collect()
}

fn header(work: &WorkRequest) -> Header {
    let Verb::Send { front, piece } = &work.verb else {
        panic!("{work:?} is no SEND");
    };
    let payload = piece.map_or(0, |piece| piece.bytes as usize);
    let received = front.bytes().len() + payload;
    Header::decode(front.bytes(), received, WriteLayout::PAPER).unwrap()
}

fn acknowledge(connection: &mut Connection, now_ns: u64, numbers: &[AckedNumber]) {
    let mut ack = Ack::new(0, 0, false);
    for number in numbers {
        assert!(ack.push(*number));
    }
    let mut bytes = [0; MAX_ACK_BYTES];
    let length = ack.encode(&mut bytes);
    connection
        .received_ack(now_ns, &bytes[..length], now_ns)
        .unwrap();
}

/// A SEND of the peer in our first epoch.
fn hear(
    connection: &mut Connection,
    number: u32,
    content: Content,
    payload_bytes: u32,
) -> Vec<Action> {
    let header = Header {
        hint: false,
        epoch: 0,
        number: SendNumber(number),
        global: GlobalNumber(number.into()),
        content,
        payload_bytes,
    };
    let front = header.encode(WriteLayout::PAPER);
    let bytes = front.bytes().len() + payload_bytes as usize;
    connection
        .received_send(0, received(number.into()), front.bytes(), bytes)
        .unwrap();
    std::iter::from_fn(|| connection.cx.actions.pop_front()).collect()
}

fn received(receive: u64) -> Received {
    Received {
        path: 0,
        receive,
        arrived_ns: 0,
        marked: false,
    }
}

/// The peer's first SEND grants memory for our first written message.
fn grant(sender: &mut Connection) {
    let place = PLACE;
    hear(sender, 0, Content::Grant { message: 1, place }, 0);
}
