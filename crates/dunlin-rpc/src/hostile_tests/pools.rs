//! Clients of message pools that write whatever they like into zones and entries, and tell of messages that are not there.

use dunlin_verbs::{ConnectAttributes, QueuePair, RemoteAddress, RemoteKey};

use super::*;
use crate::bootstrap::{dial, DialConfig, OpenRequest};
use crate::channel::pool::block::{Draft, Seals};
use crate::channel::pool::{block_bytes, CALLS};

/// The bit that tells of a message, as an honest client knows it.
const RINGS: u32 = 1 << 29;
/// What the server was not told otherwise.
const EAGER: usize = 4096;

/// A client of a pool without manners.
struct Guest {
    raw: Raw,
    zone: RemoteAddress,
    inlet: RemoteAddress,
    /// What it is to say that it is, if it is heard by completions.
    number: Option<u32>,
    seals: Seals,
}

impl Guest {
    fn dial(device: &ShmDevice, server: &RunningServer, preset: Preset) -> Self {
        let mut raw = Raw::new(device, 64);
        let inlet = raw.inlet.remote();
        let numbers = [
            ("inlet-address", inlet.address),
            ("inlet-key", u64::from(inlet.key.0)),
            ("requests-address", inlet.address),
            ("requests-key", u64::from(inlet.key.0)),
            ("eager-bytes", 1024),
            ("max-message-bytes", 1 << 20),
            ("pool-secret", 1),
        ];
        let fabrics = devices::fabrics(None, None).unwrap();
        let config = DialConfig {
            capabilities: devices::capabilities(&fabrics).unwrap(),
            ..DialConfig::default()
        };
        let request = OpenRequest {
            device: String::new(),
            preset: preset.name().into(),
            endpoint: raw.queue_pair.address(),
            parameters: numbers.map(|(name, value)| (name.to_owned(), value)).into(),
        };
        let reply = dial(&server.address(), &config)
            .unwrap()
            .open(request)
            .unwrap();
        raw.queue_pair
            .to_ready_to_receive(Some(&reply.endpoint), ConnectAttributes::default())
            .unwrap();
        raw.queue_pair.to_ready_to_send().unwrap();
        let place = |name: &str| RemoteAddress {
            address: reply.parameters[&format!("{name}-address")],
            key: RemoteKey(reply.parameters[&format!("{name}-key")] as u32),
        };
        Self {
            zone: place("pool"),
            inlet: place("inlet"),
            number: reply
                .parameters
                .get("pool-rings")
                .map(|&number| number as u32),
            seals: Seals::sum(reply.parameters["pool-secret"]),
            raw,
        }
    }

    /// What it would tell of a message in this block.
    fn ring(&self, block: u32) -> Option<u32> {
        self.number.map(|number| RINGS | number << 8 | block)
    }

    fn write(&mut self, at: RemoteAddress, bytes: &[u8], immediate: Option<u32>) -> bool {
        self.raw.target = at;
        self.raw.post(0, bytes, immediate)
    }

    /// Writes a message that is sealed as it should be, and tells of it in this way.
    fn message(&mut self, block: usize, header: Header, payload: &[u8], ring: Option<u32>) -> bool {
        let mut draft = Draft::new(block_bytes(EAGER));
        draft.fill(payload);
        let bytes = draft.finish(header, 0, &self.seals, block).to_vec();
        let end = (block + 1) * block_bytes(EAGER);
        self.write(self.zone.plus((end - bytes.len()) as u64), &bytes, ring)
    }

    fn call(&mut self, block: usize, call: u64, ring: Option<u32>) -> bool {
        let payload = b"a request of nobody's";
        let header = Header::new(Kind::Request, ECHO, call, payload.len());
        self.message(block, header, payload, ring)
    }

    /// Something that no honest client does; `false` when the connection is over.
    fn misbehave(&mut self, random: &mut Random) -> bool {
        let block = random.below(32);
        let any = random.next() as u32;
        let other = random.of(&[0, 31, 32, 77, 255]);
        let ring = random.of(&[self.ring(block as u32), self.ring(other), None, Some(any)]);
        match random.below(6) {
            0 => {
                let at = random.below(32 * block_bytes(EAGER) - 600);
                let length = random.below(600);
                let noise = random.bytes(length);
                self.write(self.zone.plus(at as u64), &noise, ring)
            }
            1 => {
                let word = (random.next() >> random.below(64)).to_le_bytes();
                let at = random.of(&[0, 64]);
                self.write(self.inlet.plus(at), &word, ring)
            }
            2 => self.write(self.zone, &[], ring),
            3 => {
                let kind = random.of(&[
                    Kind::Response,
                    Kind::LongRequest,
                    Kind::Attach,
                    Kind::Release,
                    Kind::Cancel,
                    Kind::Turn,
                ]);
                let length = random.below(40);
                let payload = random.bytes(length);
                let call = random.of(&[block as u64, 1 << 40, u64::MAX]);
                let header = Header::new(kind, random.of(&[0, ECHO, 999]), call, length);
                self.message(block, header, &payload, ring)
            }
            _ => {
                let generation = random.of(&[0, 1, 2, u64::from(u32::MAX)]);
                self.call(block, block as u64 | generation << 32, ring)
            }
        }
    }
}

#[test]
fn guests_of_pools_that_write_anything_harm_themselves_alone() {
    for preset in [Preset::RawWrite, Preset::SelfRpc, Preset::ScaleRpc] {
        let server = serve();
        let device = hostile_device();
        let seeds = 40;
        beside_a_good_client_of(preset, &server, || {
            for seed in 1..=seeds {
                let mut random = Random::new(seed);
                let mut guest = Guest::dial(&device, &server, preset);
                for _ in 0..60 {
                    if !guest.misbehave(&mut random) || !guest.raw.is_alive() {
                        break;
                    }
                }
            }
            eventually("hostile clients end", || server.connections() <= 2);
        });
        println!(
            "{preset}: {seeds} seeds, {} violations",
            server.statistics().violations
        );
        assert!(server.statistics().violations > 0 || preset == Preset::ScaleRpc);
        eventually("nobody is left", || server.connections() == 0);
        assert!(server.shutdown());
    }
}

/// What a client tells of messages is checked against what is there.
#[test]
fn each_lie_about_a_message_ends_its_client() {
    let server = serve();
    let device = hostile_device();
    type Lie = fn(&mut Guest) -> bool;
    let lies: [(&str, Lie); 7] = [
        ("no message", |guest| {
            guest.write(guest.zone, &[], guest.ring(3))
        }),
        ("another client", |guest| {
            let ring = guest.number.map(|number| RINGS | (number + 1) << 8 | 2);
            guest.call(2, 2, ring)
        }),
        ("another block", |guest| guest.call(2, 2, guest.ring(4))),
        ("no block", |guest| {
            guest.write(guest.zone, &[], guest.ring(32))
        }),
        ("half of a message", |guest| {
            let end = block_bytes(EAGER) as u64;
            guest.write(guest.zone.plus(end - 8), &[7; 8], guest.ring(0))
        }),
        ("a call in the place of words", |guest| {
            guest.call(CALLS, CALLS as u64, guest.ring(CALLS as u32))
        }),
        ("an entry that is none", |guest| {
            guest.write(guest.inlet, &[1, 0, 0, 0, 9, 0, 5, 0], guest.ring(77))
        }),
    ];
    for (index, (name, lie)) in lies.iter().enumerate() {
        let mut guest = Guest::dial(&device, &server, Preset::SelfRpc);
        // It may be over before the WRITE is known to be.
        let _ = lie(&mut guest);
        eventually(name, || server.statistics().violations == index as u64 + 1);
        eventually("it has ended", || server.connections() == 0);
    }
    // Who tells the truth is heard: each of these is executed, and no sooner than it is told of.
    let mut guest = Guest::dial(&device, &server, Preset::SelfRpc);
    assert!(guest.call(5, 5, None));
    assert!(guest.call(6, 6, guest.ring(6)));
    eventually("the one that was told of is taken", || {
        server.statistics().requests == 1
    });
    let ring = guest.ring(5);
    assert!(guest.write(guest.zone, &[], ring));
    eventually("so is the other", || server.statistics().requests == 2);
    assert_eq!(server.statistics().violations, lies.len() as u64);
    assert_eq!(server.connections(), 1);
}
