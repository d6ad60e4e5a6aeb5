//! The acts of a hostile client of datagrams.

use dunlin_verbs::{Device, RemoteKey};

use super::Sender;
use crate::channel::call_id::call_id;
use crate::channel::datagram::packet::{Head, HEAD_BYTES};
use crate::channel::message::{Header, Kind};
use crate::hostile::{wait_for, Random, ECHO, LONG};

impl<D: Device> Sender<D> {
    /// Sends noise, some of it with a valid header. Returns `false` if the queue pair has failed.
    pub(crate) fn misbehave(&mut self, random: &mut Random) -> bool {
        let choice = random.below(5);
        let length = random.of(&[0, 1, 15, 16, 17, 31, 40, 300, self.theirs.packet_bytes]);
        let mut bytes = random.bytes(length);
        let cookie = match choice {
            // A guess, or the valid one for another session.
            0 | 1 => random.next(),
            _ => self.theirs.to.cookie,
        };
        let session = match choice {
            1 | 2 => random.of(&[0, 1, 2, 77, u16::MAX]),
            _ => self.theirs.to.session,
        };
        let head = Head {
            cookie,
            session,
            messages: random.of(&[0, 1, 2, 100, u8::MAX]),
            wants_datagrams: choice == 3,
        };
        if let (1.., Some(start)) = (choice, bytes.get_mut(..HEAD_BYTES)) {
            start.copy_from_slice(&head.encode());
        }
        self.send(&bytes)
    }

    /// Sends something that looks like a message. Returns `false` if the queue pair has failed.
    fn crooked(&mut self, random: &mut Random) -> bool {
        let kind = random.of(&[
            Kind::Request,
            Kind::Request,
            Kind::Response,
            Kind::LongRequest,
            Kind::RequestSegment,
            Kind::ResponseSegment,
            Kind::Segments,
            Kind::Question,
            Kind::Cancel,
            Kind::Release,
            Kind::Goodbye,
            Kind::RequestPart,
            Kind::CreditReturn,
            Kind::ResponseRequest,
            Kind::ResponsePart,
        ]);
        let generation = random.of(&[0, 0, 1, 7, u32::MAX]);
        let call = call_id(random.below(18) as u32, generation);
        let payload = match random.below(4) {
            0 => Vec::new(),
            1 => call.to_le_bytes().to_vec(),
            2 => {
                let length = random.below(100);
                random.bytes(length)
            }
            _ => {
                // A segment of something longer: its total length, the segment's number, and no bytes.
                let total = random.of(&[4, 5000, 9000, 1 << 20, u32::MAX]);
                let piece = random.of(&[0, 1, 2, 4052, u32::MAX]);
                let mut payload = [total, piece, 0].map(u32::to_le_bytes).concat();
                let room = self.theirs.packet_bytes - 16 - HEAD_BYTES - payload.len();
                let length = random.of(&[0, 4, 10, (room & !7) - 8]);
                payload.resize(payload.len() + length, 1);
                payload
            }
        };
        let many = random.below(200);
        match random.below(8) {
            0 => self.many(kind, many),
            _ => self.message(kind, call, &payload),
        }
    }

    /// Writes something into the zone of requests, or beyond it; there is no report of whether that was possible.
    fn scribble(&mut self, random: &mut Random) -> bool {
        let Some(uplink) = &mut self.uplink else {
            return self.many(Kind::Cancel, 100);
        };
        wait_for("room in the send queue", || {
            uplink.make_room().unwrap_or(true)
        });
        let block = random.below(32);
        let mut place = uplink.zone();
        match random.below(5) {
            0 => {
                let kind = random.of(&[Kind::Request, Kind::Response, Kind::LongRequest]);
                let call = random.of(&[block as u64, call_id(0, 1), 1 << 40, u64::MAX]);
                uplink.put(block, Header::new(kind, ECHO, call, 8), b"nobody's");
            }
            1 | 2 => uplink.write(random.of(&[ECHO, LONG, 999]), block as u64, b"its own"),
            3 => {
                place.key = RemoteKey(place.key.0.wrapping_add(random.of(&[1, 2, u32::MAX])));
                uplink.scribble(place, &[0xee; 8]);
            }
            _ => {
                let far = random.of(&[0, 8, 4000, 30_000, 1 << 40, u64::MAX]);
                // Every NIC accepts this many inline.
                let length = 1 + random.below(60);
                let noise = random.bytes(length);
                uplink.scribble(place.plus(far), &noise);
            }
        }
        uplink.check().is_ok()
    }

    /// Does something that no honest client does. Returns `false` if nothing more can be done with this session.
    pub(crate) fn stray(&mut self, random: &mut Random) -> bool {
        match random.below(10) {
            0..=2 => self.misbehave(random),
            3..=5 => self.crooked(random),
            6 | 7 => self.scribble(random),
            8 => {
                // To other queue pairs of this device, if the key is valid for them.
                let other = self
                    .to
                    .queue_pair
                    .wrapping_add(random.of(&[1, 2, u32::MAX]));
                let noise = random.bytes(60);
                self.send_to(other & 0x00ff_ffff, self.to.queue_key, &noise)
            }
            _ => {
                let key = self.to.queue_key ^ 1 << random.below(31);
                self.send_to(self.to.queue_pair, key, &[0; 60])
            }
        }
    }
}
