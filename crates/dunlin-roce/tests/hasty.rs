//! A timeout that came too early: answers show that nothing was lost, and the requester goes on as if it had not been.

use dunlin_roce::packet::{
    Acknowledgement, Header, Operation, Psn, Service, Syndrome, DEFAULT_PARTITION_KEY,
};
use dunlin_roce::reliable::{Request, Requester, RequesterConfig, Verb};

const MTU: u32 = 1024;
const WINDOW: u32 = 64;
const LATE_NS: u64 = 20_000_000;

fn requester() -> Requester {
    Requester::new(RequesterConfig {
        peer_queue_pair: 7,
        first_psn: Psn::new(0),
        mtu_bytes: MTU,
        window_packets: WINDOW,
        requests: 8,
        max_outstanding_reads: 8,
        timeout_ns: 1_000_000_000,
        retry_count: 7,
        receiver_not_ready_retries: 7,
        asks_for_each: false,
    })
}

fn post(requester: &mut Requester, verb: Verb, packets: u32) {
    let request = Request {
        id: 0,
        verb,
        bytes: packets * MTU,
        fence: false,
        solicited: false,
        prompt: true,
    };
    requester.post(request).expect("there is room");
}

const WRITE: Verb = Verb::Write {
    address: 0,
    key: 1,
    immediate: None,
};

/// The sequence numbers of all that it sends now, and how many packets they stand for in all.
fn sent(requester: &mut Requester, now_ns: u64) -> Vec<u32> {
    std::iter::from_fn(|| requester.poll_transmit(now_ns))
        .map(|transmit| transmit.header.psn.value())
        .collect()
}

fn answer(psn: u32, operation: Operation) -> Header {
    Header {
        service: Service::Reliable,
        operation,
        solicited: false,
        acknowledge: false,
        partition_key: DEFAULT_PARTITION_KEY,
        queue_pair: 3,
        psn: Psn::new(psn),
    }
}

fn acknowledgement() -> Acknowledgement {
    Acknowledgement {
        syndrome: Syndrome::Acknowledged(31),
        messages: 0,
    }
}

fn acknowledge(requester: &mut Requester, psn: u32) {
    let acknowledgement = acknowledgement();
    let operation = Operation::Acknowledge { acknowledgement };
    requester.handle(LATE_NS + 1, &answer(psn, operation), 0);
}

/// Two WRITEs of a window each; the first is on its way when the timeout comes.
fn late_writes() -> Requester {
    let mut requester = requester();
    post(&mut requester, WRITE, WINDOW);
    post(&mut requester, WRITE, WINDOW);
    assert_eq!(sent(&mut requester, 0), Vec::from_iter(0..WINDOW));
    requester.handle_timeout(LATE_NS);
    assert_eq!(sent(&mut requester, LATE_NS), [0, 1, 2, 3]);
    requester
}

#[test]
fn a_late_acknowledgement_of_more_than_was_sent_again_takes_the_timeout_back() {
    let mut requester = late_writes();
    acknowledge(&mut requester, 31);
    let new = Vec::from_iter(WINDOW..WINDOW + 32);
    assert_eq!(sent(&mut requester, LATE_NS + 1), new);
}

#[test]
fn one_of_what_was_sent_again_does_not() {
    let mut requester = late_writes();
    acknowledge(&mut requester, 3);
    let again = Vec::from_iter(4..12);
    assert_eq!(sent(&mut requester, LATE_NS + 1), again);
}

/// Then it may be of what was sent again after the first.
#[test]
fn after_two_timeouts_in_a_row_no_acknowledgement_does() {
    let mut requester = late_writes();
    requester.handle_timeout(4 * LATE_NS);
    acknowledge(&mut requester, 31);
    assert_eq!(sent(&mut requester, 4 * LATE_NS).first(), Some(&32));
}

#[test]
fn late_answers_to_a_read_take_the_timeout_back() {
    let mut requester = requester();
    let read = Verb::Read { address: 0, key: 1 };
    post(&mut requester, read, 2 * WINDOW);
    // Two pieces of half a window.
    assert_eq!(sent(&mut requester, 0), [0, 32]);
    requester.handle_timeout(LATE_NS);
    assert_eq!(sent(&mut requester, LATE_NS), [0]);
    let acknowledgement = acknowledgement();
    for psn in 0..WINDOW {
        let operation = match psn % 32 {
            0 => Operation::ReadResponseFirst { acknowledgement },
            31 => Operation::ReadResponseLast { acknowledgement },
            _ => Operation::ReadResponseMiddle,
        };
        let placed = requester.handle(LATE_NS + 1, &answer(psn, operation), MTU as usize);
        assert!(placed.is_some(), "{psn}");
        let asked = sent(&mut requester, LATE_NS + 1);
        match psn {
            // What was asked for again, in the small pieces of a connection that loses packets.
            0..16 => assert!(asked.iter().all(|&psn| psn < 32), "{asked:?}"),
            31 => assert_eq!(asked, [64]),
            63 => assert_eq!(asked, [96]),
            _ => assert!(asked.is_empty(), "{psn}: {asked:?}"),
        }
    }
}
