//! Datagrams: one packet each, to any peer, delivered with a routing header in front.

use std::net::{IpAddr, SocketAddr};

use dunlin_verbs::{CompletionStatus, GRH_BYTES};

use super::{Engine, Protocol, Shared};
use crate::packet::{Header, Operation, Service, DEFAULT_PARTITION_KEY};
use crate::reliable::Delivered;
use crate::socket::{Count, Path, Train};
use crate::work::Gone;

/// The destination of a datagram, and its header fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram {
    pub(crate) path: Path,
    pub(crate) queue_pair: u32,
    pub(crate) queue_key: u32,
    pub(crate) immediate: Option<u32>,
    pub(crate) solicited: bool,
}

impl Engine {
    /// Sends the newest send as a datagram, which completes it.
    pub(crate) fn send_datagram(&mut self, shared: &Shared, train: &mut Train, to: &Datagram) {
        let Protocol::Datagram { next } = &mut self.protocol else {
            return;
        };
        let psn = *next;
        *next = next.plus(1);
        let header = Header {
            service: Service::Datagram {
                queue_key: to.queue_key,
                source_queue_pair: shared.number,
            },
            operation: Operation::SendOnly {
                immediate: to.immediate,
            },
            solicited: to.solicited,
            acknowledge: false,
            partition_key: DEFAULT_PARTITION_KEY,
            queue_pair: to.queue_pair,
            psn,
        };
        let Some(send) = self.sends.back() else {
            return;
        };
        let (socket, bytes) = (&shared.core.socket, &send.bytes);
        let added = train.add(socket, &to.path, &header, bytes.len(), |place| {
            bytes.gather(0, place)
        });
        self.end_send(
            shared,
            match added {
                Ok(()) => CompletionStatus::Success,
                Err(Gone) => CompletionStatus::LocalProtection,
            },
        );
    }

    pub(super) fn handle_datagram(
        &mut self,
        shared: &Shared,
        source: &SocketAddr,
        header: &Header,
        payload: &[u8],
    ) {
        let statistics = &shared.core.socket.statistics;
        let Service::Datagram {
            queue_key,
            source_queue_pair,
        } = header.service
        else {
            return;
        };
        if queue_key != shared.queue_key {
            return statistics.count(Count::WrongKey);
        }
        let Operation::SendOnly { immediate } = header.operation else {
            return statistics.count(Count::Malformed);
        };
        if self.current.is_none() {
            self.current = shared.receives.pop();
        }
        let Some(receive) = &self.current else {
            return statistics.count(Count::NoReceive);
        };
        if receive.bytes.len() < GRH_BYTES + payload.len() {
            // The RECEIVE is kept for a datagram that fits.
            return statistics.count(Count::Refused);
        }
        let placed = receive
            .bytes
            .scatter(0, &routing_header(source.ip(), payload.len()))
            .and_then(|()| receive.bytes.scatter(GRH_BYTES, payload));
        let Some(receive) = self.current.take() else {
            return;
        };
        match placed {
            Ok(()) => {
                let delivered = Delivered {
                    bytes: (GRH_BYTES + payload.len()) as u32,
                    immediate,
                    write: false,
                    solicited: header.solicited,
                };
                shared.complete_receive(&receive, delivered, Some(source_queue_pair));
            }
            Err(_) => shared.fail_receive(&receive, CompletionStatus::LocalProtection),
        }
    }
}

/// The header in front of a received datagram: an IPv6 header, or twenty meaningless bytes and an IPv4 header (IBTA
/// annex A17.4.5.1). Only the source is filled in; everything else is in the completion.
fn routing_header(source: IpAddr, payload_bytes: usize) -> [u8; GRH_BYTES] {
    let mut header = [0; GRH_BYTES];
    match source {
        IpAddr::V4(address) => {
            header[20] = 0x45;
            header[32..36].copy_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            header[0] = 0x60;
            header[4..6].copy_from_slice(&(payload_bytes as u16).to_be_bytes());
            header[8..24].copy_from_slice(&address.octets());
        }
    }
    header
}
