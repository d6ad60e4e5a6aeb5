//! What is heard of queue pairs that are no more: of those that datagrams go to, and of one that another thread ends.

mod common;

use common::{pair_of, wait, Side};
use dunlin_shm::{ShmAddressHandle, ShmDevice};
use dunlin_verbs::{
    CompletionStatus, Destination, Device, EndpointAddress, Operation, Payload, QueuePair,
    QueuePairState, SendFlags, SendRequest, Transport,
};

fn handle(side: &Side, address: &EndpointAddress) -> ShmAddressHandle {
    let made = side.device.create_address_handle(&side.domain, address);
    made.unwrap()
}

fn ready() -> Side {
    let mut side = Side::new(Transport::UnreliableDatagram);
    let own = side.pair.address();
    side.connect(&own);
    side
}

/// Sends a datagram, which makes the port that the receiver's end is told to, and has it arrive.
fn greet(from: &mut Side, to: &mut Side, handle: &ShmAddressHandle) {
    to.receive(1, 0, 100);
    let address = to.pair.address();
    let send = Operation::Send { immediate: None };
    let mut request = SendRequest::new(1, send, Payload::Inline(b"hello"), SendFlags::SIGNALED);
    request.destination = Some(Destination {
        handle,
        queue_pair: address.queue_pair,
        queue_key: address.queue_key,
    });
    from.pair.post_send(&[request]).unwrap();
    assert!(from.sent().is_success());
    assert!(to.received().is_success());
}

#[test]
fn a_device_that_is_gone_is_known_without_a_datagram() {
    let (here, there) = (ready(), ready());
    let (first, second) = (there.pair.address(), here.pair.address());
    let (to, own) = (handle(&here, &first), handle(&here, &second));
    assert!(!ShmDevice::is_gone(&to));
    drop(there);
    wait(|| ShmDevice::is_gone(&to));
    assert!(!ShmDevice::is_gone(&own));
    // Also by who asks when it is too late.
    let late = handle(&here, &first);
    wait(|| ShmDevice::is_gone(&late));
}

/// One may end between the connection to it and the first message, whose failure then is the only sign.
#[test]
fn devices_that_end_while_they_are_met_are_known() {
    let here = ready();
    for _ in 0..100 {
        let there = ready();
        let to = handle(&here, &there.pair.address());
        drop(there);
        wait(|| ShmDevice::is_gone(&to));
    }
}

#[test]
fn a_queue_pair_that_is_gone_is_known_to_who_sent_to_it() {
    let (mut here, mut there) = (ready(), ready());
    let other = Side::on(&there.device, Transport::UnreliableDatagram);
    let (address, beside) = (there.pair.address(), other.pair.address());
    let (to, beside) = (handle(&here, &address), handle(&here, &beside));
    greet(&mut here, &mut there, &to);
    assert!(!ShmDevice::is_gone(&to));
    let Side { pair, .. } = there;
    drop(pair);
    wait(|| ShmDevice::is_gone(&to));
    assert!(!ShmDevice::is_gone(&beside));
}

#[test]
fn another_thread_ends_a_queue_pair_and_both_sides_hear_of_it() {
    let (mut a, mut b) = pair_of(Transport::ReliableConnection);
    b.receive(1, 0, 100);
    a.post_inline(1, Operation::Send { immediate: None }, b"connected");
    assert!(a.sent().is_success());
    assert!(b.received().is_success());
    b.receive(2, 0, 100);
    let abort = b.pair.aborter().unwrap();
    std::thread::spawn(abort).join().unwrap();
    assert_eq!(b.pair.state(), QueuePairState::Error);
    assert_eq!(b.received().status, CompletionStatus::Flushed);
    wait(|| a.pair.state() == QueuePairState::Error);
    // It is no owner, and is of no use when there is nothing to end.
    let abort = a.pair.aborter().unwrap();
    drop(a);
    abort();

    let (mut here, mut there) = (ready(), ready());
    let address = there.pair.address();
    let to = handle(&here, &address);
    greet(&mut here, &mut there, &to);
    let abort = there.pair.aborter().unwrap();
    std::thread::spawn(abort).join().unwrap();
    wait(|| ShmDevice::is_gone(&to));
}
