//! The turns of clients: fetching their requests, telling them, and what is late.

use super::*;
use crate::channel::pool::server::TurnLoad;

/// Ends the client's turn.
fn end_turn(served: &mut ServedPool<Shm>) -> TurnLoad {
    let load = served.end_turn().unwrap();
    settle(served);
    load
}

/// ScaleRPC Fig. 7: IDLE, WARMUP with the entry, PROCESS with the first answer, IDLE with the end of the turn.
#[test]
fn a_client_goes_through_its_states() {
    let pools = Pools::new();
    goes_through_its_states(pools.join(0));
    // With memory of its own the zones of the pools are only the right to be served.
    goes_through_its_states(pools.join_in(PoolMemory::OwnByTurns));
}

fn goes_through_its_states((mut client, mut served): (PoolChannel<Shm>, ServedPool<Shm>)) {
    assert_eq!(client.state, State::Idle);
    assert!(!served.wants_turn().unwrap());
    request(&mut client, call(0, 0), b"fetched");
    assert_eq!(client.state, State::Warmup);
    // It is not announced before its turn has begun.
    request(&mut client, call(1, 0), b"waits");
    begin_turn(&mut served, 0);
    assert_eq!(taken(&mut served), [(call(0, 0), b"fetched".to_vec())]);
    answer(&mut served, call(0, 0), b"one");
    assert_eq!(answers(&mut client), [(call(0, 0), b"one".to_vec())]);
    assert_eq!(client.state, State::Process);
    request(&mut client, call(0, 1), b"written");
    let both = [
        (call(0, 1), b"written".to_vec()),
        (call(1, 0), b"waits".to_vec()),
    ];
    assert_eq!(taken(&mut served), both);
    answer(&mut served, call(1, 0), b"two");
    // The last response of the turn carries its end.
    served.end_soon();
    assert!(taken(&mut served).is_empty());
    answer(&mut served, call(0, 1), b"three");
    let load = end_turn(&mut served);
    assert_eq!((load.requests, load.bytes, load.late), (3, 19, 0));
    assert_eq!(answers(&mut client).len(), 2);
    assert_eq!(client.state, State::Idle);
    assert!(!served.wants_turn().unwrap(), "nothing is out");
    request(&mut client, call(0, 2), b"again");
    begin_turn(&mut served, 1);
    assert_eq!(taken(&mut served), [(call(0, 2), b"again".to_vec())]);
}

/// A client without requests in its turn is told of the end by a separate WRITE.
#[test]
fn a_turn_ends_between_two_batches() {
    let pools = Pools::new();
    let (mut client, mut served) = pools.join(0);
    let batch = |client: &mut PoolChannel<Shm>, generation: u32| {
        for slot in 0..3 {
            request(client, call(slot, generation), b"of three");
        }
    };
    let answer_all = |served: &mut ServedPool<Shm>| {
        for (call, _) in taken(served) {
            answer(served, call, b"");
        }
    };
    request(&mut client, call(0, 0), b"the turn's first");
    begin_turn(&mut served, 0);
    answer_all(&mut served);
    assert_eq!(answers(&mut client).len(), 1);
    for generation in 1..3 {
        batch(&mut client, generation);
        answer_all(&mut served);
        assert_eq!(answers(&mut client).len(), 3);
    }
    served.end_with_answer(4);
    for slot in 0..2 {
        request(&mut client, call(slot, 3), b"of three");
        answer_all(&mut served);
        assert!(!served.may_end(), "in the middle of a batch");
    }
    request(&mut client, call(2, 3), b"of three");
    answer_all(&mut served);
    assert!(served.may_end());
    assert_eq!(answers(&mut client).len(), 3);
    assert_eq!(client.state, State::Idle);
    assert_eq!(end_turn(&mut served).words, 0);
}

#[test]
fn the_end_of_a_turn_is_told_without_answers() {
    let pools = Pools::new();
    let (mut client, mut served) = pools.join(0);
    request(&mut client, call(0, 0), b"slow");
    begin_turn(&mut served, 0);
    assert_eq!(taken(&mut served).len(), 1);
    // Its worker takes a while: the turn, and its end, are reported without it.
    served.tell_turn().unwrap();
    settle(&mut served);
    assert!(answers(&mut client).is_empty());
    assert_eq!(client.state, State::Process);
    served.end_soon();
    end_turn(&mut served);
    assert!(answers(&mut client).is_empty());
    assert_eq!(client.state, State::Idle);
    assert!(!served.wants_turn().unwrap(), "the server has the call");
    answer(&mut served, call(0, 0), b"done");
    assert_eq!(answers(&mut client), [(call(0, 0), b"done".to_vec())]);
    assert_eq!(client.state, State::Idle);
}

/// A request that is written when the turn is over is executed in the next, once, and is not attributed to the client
/// that has the zone now.
#[test]
fn a_late_request_is_fetched_and_is_nobody_elses() {
    let pools = Pools::new();
    let (mut first, mut served_first) = pools.join(0);
    let (mut second, mut served_second) = pools.join(1);
    request(&mut first, call(0, 0), b"on time");
    begin_turn(&mut served_first, 0);
    assert_eq!(taken(&mut served_first).len(), 1);
    answer(&mut served_first, call(0, 0), b"");
    assert_eq!(answers(&mut first).len(), 1);
    served_first.end_soon();
    assert!(taken(&mut served_first).is_empty());
    // The server has polled for the last time, and has not reported that yet.
    request(&mut first, call(3, 0), b"late");
    assert_eq!(first.state, State::Process);
    end_turn(&mut served_first);
    request(&mut second, call(0, 0), b"second");
    begin_turn(&mut served_second, 0);
    let seconds = [(call(0, 0), b"second".to_vec())];
    assert_eq!(taken(&mut served_second), seconds);
    assert!(answers(&mut first).is_empty());
    assert_eq!(first.state, State::Warmup);
    begin_turn(&mut served_first, 1);
    let late = [(call(3, 0), b"late".to_vec())];
    assert_eq!(taken(&mut served_first), late);
    answer(&mut served_first, call(3, 0), b"done");
    assert_eq!(answers(&mut first), [(call(3, 0), b"done".to_vec())]);
}

/// A late request that overwrites another client's message costs that client its turn, and no more.
#[test]
fn a_message_that_a_late_one_has_hit_is_fetched_again() {
    let pools = Pools::new();
    let (mut first, mut served_first) = pools.join(0);
    let (mut second, mut served_second) = pools.join(1);
    request(&mut first, call(0, 0), b"first");
    begin_turn(&mut served_first, 0);
    // What the first client has written arrives once more, when the zone belongs to the second.
    let mut late = [0; 40];
    let end = pools.end(0, 0);
    pools.memory().read(end - late.len(), &mut late);
    assert_eq!(taken(&mut served_first).len(), 1);
    answer(&mut served_first, call(0, 0), b"");
    served_first.end_soon();
    end_turn(&mut served_first);
    for part in [40, 16, 8] {
        let generation = second.turn.number;
        request(&mut second, call(0, generation), b"the second's");
        begin_turn(&mut served_second, 0);
        pools.memory().write(end - part, &late[40 - part..]);
        assert!(taken(&mut served_second).is_empty());
        while !served_second.is_overwritten() {
            assert!(served_second.receive().unwrap().is_none());
        }
        assert_eq!(end_turn(&mut served_second).late, 1);
        assert!(answers(&mut second).is_empty());
        assert_eq!(second.state, State::Warmup);
        begin_turn(&mut served_second, 0);
        let seconds = [(call(0, generation), b"the second's".to_vec())];
        assert_eq!(taken(&mut served_second), seconds);
        answer(&mut served_second, call(0, generation), b"");
        served_second.end_soon();
        end_turn(&mut served_second);
        assert_eq!(answers(&mut second).len(), 1);
        assert_eq!(second.state, State::Idle);
    }
}

/// A request that was taken and is fetched again, because its client could not know, is executed once.
#[test]
fn what_is_fetched_twice_is_taken_once() {
    let pools = Pools::new();
    let (mut client, mut served) = pools.join(0);
    request(&mut client, call(0, 0), b"twice");
    begin_turn(&mut served, 0);
    assert_eq!(taken(&mut served).len(), 1);
    // As if the calls with workers had not been reported.
    let working = std::mem::take(&mut served.working);
    served.end_soon();
    end_turn(&mut served);
    served.working = working;
    assert!(answers(&mut client).is_empty());
    assert_eq!(client.state, State::Warmup);
    begin_turn(&mut served, 1);
    assert!(taken(&mut served).is_empty());
    answer(&mut served, call(0, 0), b"once");
    assert_eq!(answers(&mut client), [(call(0, 0), b"once".to_vec())]);
}

/// A READ whose completion was not taken stands for one that the client lets wait.
#[test]
fn requests_that_are_not_fetched_before_a_read_ends_are_no_arrival() {
    let pools = Pools::new();
    let (mut client, mut served) = pools.join(0);
    request(&mut client, call(0, 0), b"fetched");
    assert!(served.has_arrival());
    assert!(served.warm_up(0).unwrap());
    served.give_up_warm_up();
    assert!(!served.wants_turn().unwrap());
    assert!(!served.has_arrival(), "nothing can be done");
    while !served.wants_turn().unwrap() {
        served.progress().unwrap();
    }
    assert!(served.has_arrival());
    begin_turn(&mut served, 0);
    assert_eq!(taken(&mut served), [(call(0, 0), b"fetched".to_vec())]);
}

/// A client that takes its entry back between the poll that finds it and the one that serves it gets no zone: the
/// server would count the zone as taken, and give it to no other.
#[test]
fn an_entry_that_is_taken_back_gets_no_zone() {
    let pools = Pools::new();
    let (mut client, mut served) = pools.join(0);
    let entry = || pools.memory().atomic_u64(0);
    let before = entry().load(std::sync::atomic::Ordering::Acquire);
    request(&mut client, call(0, 0), b"here");
    let announced = entry().swap(before, std::sync::atomic::Ordering::AcqRel);
    assert_ne!(announced, before);
    assert!(!served.warm_up(0).unwrap());
    assert_eq!(served.place(), None);
    entry().store(announced, std::sync::atomic::Ordering::Release);
    begin_turn(&mut served, 0);
    assert_eq!(taken(&mut served), [(call(0, 0), b"here".to_vec())]);
}

/// A batch of short requests is fetched by one READ for eight of them; if one is longer than a slot, each is fetched by
/// a READ of its own.
#[test]
fn a_batch_is_fetched_together() {
    for (longest, reads) in [(40, 2), (250, 10)] {
        let pools = Pools::new();
        let (mut client, mut served) = pools.join(0);
        // The server fetches only announced requests: first this one alone, the others with the next turn.
        request(&mut client, call(0, 0), b"first");
        begin_turn(&mut served, 0);
        assert_eq!(taken(&mut served), [(call(0, 0), b"first".to_vec())]);
        answer(&mut served, call(0, 0), b"");
        end_turn(&mut served);
        answers(&mut client);
        assert_eq!(client.state, State::Idle);
        let payload = |block: u32| vec![block as u8; longest - block as usize];
        let calls: Vec<u64> = (1..=10).map(|block| call(block, 0)).collect();
        for &call in &calls {
            let payload = payload(call as u32);
            client.push(Kind::Request, 1, call, &payload);
        }
        client.flush().unwrap();
        settle(&mut client);
        let before = served.carrier.last_posted().number();
        begin_turn(&mut served, 1);
        assert_eq!(
            served.carrier.last_posted().number() - before,
            reads,
            "READs"
        );
        let expected = calls.iter().map(|&call| (call, payload(call as u32)));
        assert_eq!(taken(&mut served), expected.collect::<Vec<_>>());
    }
}
