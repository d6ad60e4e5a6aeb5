//! Rings over Flor: every design carries every message over logical queue pairs, whatever those are made of.

mod common;

use common::{close, designs, message, receive, ring_over, roce, send};
use dunlin_flor::connection::Deployment;
use dunlin_flor::device::{FlorConfig, FlorDevice};
use dunlin_ring::{Framing, LengthLimit, RingConfig};
use dunlin_verbs::Device;

fn carries<D: Device>(open: impl Fn() -> D, deployment: Deployment) {
    const MESSAGES: u64 = 300;
    let devices = [(); 2].map(|()| FlorDevice::new(open(), FlorConfig::new(deployment)).unwrap());
    for design in designs() {
        let config = RingConfig {
            design,
            slots: 32,
            slot_bytes: 192,
            framing: Framing::Header,
        };
        let (mut producer, mut consumer) = ring_over(&devices[0], &devices[1], &config);
        let (LengthLimit::AtMost(longest) | LengthLimit::Exactly(longest)) = producer.limit();
        let thread = std::thread::spawn(move || {
            for number in 0..MESSAGES {
                send(&mut producer, &message(number, longest)).unwrap();
            }
            close(&mut producer);
        });
        for number in 0..MESSAGES {
            let found = receive(&mut consumer).unwrap().expect("not the end");
            let name = design.name;
            assert!(
                found == message(number, longest),
                "{name}: message {number}"
            );
        }
        assert_eq!(receive(&mut consumer).unwrap(), None);
        thread.join().unwrap();
    }
}

#[test]
fn over_uc_in_shared_memory() {
    carries(common::device, Deployment::CrossPod);
}

#[test]
fn over_rc_in_shared_memory() {
    carries(common::device, Deployment::HybridReliable);
}

#[test]
fn over_uc_on_udp() {
    carries(roce, Deployment::CrossPod);
}
