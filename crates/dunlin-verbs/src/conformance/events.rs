//! Sleeping until a completion arrives.

use std::time::Duration;

use crate::{
    CompletionChannel, CompletionQueue, Device, Notify, Operation, QueuePair, Transport, Verbs,
};

use super::{piece, wait, Link, Options, Outcome, Stage, PATIENCE};

const RC: Transport = Transport::ReliableConnection;

fn with_channel<D: Device>(stage: &mut Stage<D>) -> Result<Link<D>, super::Skipped> {
    stage.needs(RC, Verbs::SEND)?;
    let mut ours = Options::new(RC);
    ours.channel = true;
    Ok(stage.link_with(&ours, &Options::new(RC)))
}

fn channel<D: Device>(link: &Link<D>) -> D::CompletionChannel {
    link.local.channel.clone().expect("made with a channel")
}

fn arm<D: Device>(link: &mut Link<D>, notify: Notify) {
    link.local
        .completions
        .request_notify(notify)
        .expect("the queue has a channel");
}

/// Sleeps until RECEIVE `id` has completed, polling and rearming after spurious events.
fn sleep_until<D: Device>(link: &mut Link<D>, notify: Notify, id: u64) {
    loop {
        let awake = channel(link).wait(PATIENCE).expect("the channel works");
        assert!(awake, "slept through the arrival of {id}");
        if let Some(completion) = link.local.poll() {
            assert_eq!(completion.id, id, "{completion:?}");
            return;
        }
        arm(link, notify);
        if let Some(completion) = link.local.poll() {
            assert_eq!(completion.id, id, "{completion:?}");
            return;
        }
    }
}

/// A sleeping thread wakes when a message arrives, whether it arrived during the sleep or between arming and sleeping.
pub fn arrival_wakes<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let mut link = with_channel(stage)?;
    let theirs = stage.peer.blank(8);
    let ours = stage.blank(8);
    for round in 0..20 {
        link.local.receive(round, &[piece(&ours, 0, 8)]);
        arm(&mut link, Notify::Next);
        assert_eq!(link.local.poll(), None);
        let remote = link.remote;
        if round % 2 == 0 {
            stage.peer.send(remote, round, false, &[(theirs, 0, 8)]);
            sleep_until(&mut link, Notify::Next, round);
        } else {
            link = std::thread::scope(|scope| {
                let sleeper = scope.spawn(move || {
                    sleep_until(&mut link, Notify::Next, round);
                    link
                });
                stage.peer.send(remote, round, false, &[(theirs, 0, 8)]);
                wait("the sleeper", || {
                    stage.peer.pump(remote);
                    sleeper.is_finished().then_some(())
                });
                sleeper.join().expect("the sleeper wakes")
            });
        }
        stage.arrived(&mut link, round);
    }
    Ok(())
}

/// Completions that arrived before arming are found by the poll after it.
pub fn no_wake_up_is_lost<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let mut link = with_channel(stage)?;
    let theirs = stage.peer.blank(8);
    let ours = stage.blank(8);
    for round in 0..200 {
        link.local.receive(round, &[piece(&ours, 0, 8)]);
        stage
            .peer
            .send(link.remote, round, false, &[(theirs, 0, 8)]);
        // In some rounds it has arrived before the queue is armed, in others not.
        if round % 2 == 0 {
            stage.arrived(&mut link, round);
        }
        arm(&mut link, Notify::Next);
        match link.local.poll() {
            Some(completion) => assert_eq!(completion.id, round),
            None => sleep_until(&mut link, Notify::Next, round),
        }
        if round % 2 != 0 {
            stage.arrived(&mut link, round);
        }
    }
    Ok(())
}

/// Local completions wake as well.
pub fn own_completion_wakes<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let mut link = with_channel(stage)?;
    for id in 0..20 {
        arm(&mut link, Notify::Next);
        assert_eq!(link.local.poll(), None);
        stage.peer.receive(link.remote, id, &[]);
        link.local
            .post(id, Operation::Send { immediate: None }, &[]);
        stage.arrived(&mut link, id);
        sleep_until(&mut link, Notify::Next, id);
    }
    Ok(())
}

/// Armed for solicited completions, a thread sleeps on when others arrive (occasional wake-ups are allowed, but not one
/// for each), and wakes for a solicited one and for a failure.
pub fn solicited_only<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let mut link = with_channel(stage)?;
    let theirs = stage.peer.blank(8);
    let ours = stage.blank(8);
    let mut slept_on = 0;
    for round in 0..10 {
        let (plain, solicited) = (2 * round, 2 * round + 1);
        link.local.receive(plain, &[piece(&ours, 0, 8)]);
        link.local.receive(solicited, &[piece(&ours, 0, 8)]);
        arm(&mut link, Notify::Solicited);
        assert_eq!(link.local.poll(), None);
        stage
            .peer
            .send(link.remote, plain, false, &[(theirs, 0, 8)]);
        stage.arrived(&mut link, plain);
        let brief = Duration::from_millis(5);
        if !channel(&link).wait(brief).expect("the channel works") {
            slept_on += 1;
        } else {
            arm(&mut link, Notify::Solicited);
        }
        let first = wait("the unsolicited message", || link.local.poll());
        assert_eq!(first.id, plain);
        stage
            .peer
            .send(link.remote, solicited, true, &[(theirs, 0, 8)]);
        stage.arrived(&mut link, solicited);
        sleep_until(&mut link, Notify::Solicited, solicited);
    }
    assert!(slept_on > 0, "every unsolicited message raised an event");
    link.local.receive(99, &[]);
    arm(&mut link, Notify::Solicited);
    assert_eq!(link.local.poll(), None);
    link.local.queue_pair.to_error();
    sleep_until(&mut link, Notify::Solicited, 99);
    Ok(())
}

/// `wake` ends a sleep from another thread, and one that has not begun.
pub fn wake_by_hand<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let channel = stage.device.create_completion_channel().expect("a channel");
    channel.wake();
    assert!(channel.wait(PATIENCE).expect("the channel works"));
    let sleeper = {
        let channel = channel.clone();
        std::thread::spawn(move || channel.wait(PATIENCE).expect("the channel works"))
    };
    channel.wake();
    assert!(sleeper.join().expect("the sleeper"), "slept through wake()");
    // Consumed events are gone, so eventually a wait ends by its timeout.
    wait("a wait without an event", || {
        let awake = channel.wait(Duration::from_millis(1));
        (!awake.expect("the channel works")).then_some(())
    });
    Ok(())
}

/// One channel serves several queues.
pub fn channel_serves_several_queues<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let channel = stage.device.create_completion_channel().expect("a channel");
    let theirs = Options::new(RC);
    let mut links = Vec::new();
    for _ in 0..3 {
        let mut link = stage.link(RC);
        // The helper's queue has no channel; this one takes its place.
        let queue = (stage.device).create_completion_queue(16, Some(&channel));
        let queue = queue.expect("a queue with a channel");
        let config = crate::QueuePairConfig {
            transport: RC,
            send_completions: &queue,
            receive_completions: &queue,
            send_requests: 4,
            receive_queue: crate::ReceiveQueue::<D::SharedReceiveQueue>::Own(4),
            segments: 1,
            inline_bytes: 0,
        };
        let pair = stage.device.create_queue_pair(&stage.domain, &config);
        link.local.queue_pair = pair.expect("a queue pair");
        link.local.completions = queue;
        link.local.queue_pair.to_init(theirs.access).expect("Init");
        let address = link.local.queue_pair.address();
        let (remote, remote_address) = stage.peer.endpoint(&theirs);
        stage
            .peer
            .connect(remote, Some(&address), theirs.attributes);
        (link.local)
            .connect(Some(&remote_address), theirs.attributes)
            .expect("connects");
        link.local.channel = Some(channel.clone());
        (link.remote, link.remote_address) = (remote, remote_address);
        links.push(link);
    }
    let memory = stage.peer.blank(8);
    for round in 0..9 {
        for link in &mut links {
            arm(link, Notify::Next);
            assert_eq!(link.local.poll(), None);
        }
        let link = &mut links[round as usize % 3];
        let ours = stage.blank(8);
        link.local.receive(round, &[piece(&ours, 0, 8)]);
        stage
            .peer
            .send(link.remote, round, false, &[(memory, 0, 8)]);
        sleep_until(link, Notify::Next, round);
        stage.arrived(link, round);
    }
    Ok(())
}

/// Arming a queue without a channel is an error.
pub fn arming_needs_a_channel<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let queue = stage.device.create_completion_queue(4, None);
    let mut queue = queue.expect("a completion queue");
    assert!(queue.request_notify(Notify::Next).is_err());
    Ok(())
}
