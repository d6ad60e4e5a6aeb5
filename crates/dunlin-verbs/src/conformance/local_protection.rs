//! Which local memory a request may name.

use crate::{
    Access, CompletionStatus, Device, Operation, Payload, PostErrorKind, QueuePair, Region,
    SendFlags, Transport, Verbs,
};

use super::protection::{remote_verbs, unchanged};
use super::{piece, Link, Outcome, Piece, Request, Stage};

const RC: Transport = Transport::ReliableConnection;

/// Posts a request that names local memory incorrectly. Both immediate refusal as [`PostErrorKind::Segment`] and
/// failure as [`CompletionStatus::LocalProtection`] are accepted.
fn locally_refused<D: Device>(
    stage: &mut Stage<D>,
    link: &mut Link<D>,
    operation: Operation,
    segment: Piece<'_, D>,
) {
    let pieces = [segment];
    let payload = Payload::Segments(&pieces);
    let request = Request::<D>::new(1, operation, payload, SendFlags::SIGNALED);
    match link.local.queue_pair.post_send(&[request]) {
        Ok(()) => assert_eq!(stage.failed(link, 1), CompletionStatus::LocalProtection),
        Err(error) => assert_eq!(error.kind, PostErrorKind::Segment(0)),
    }
}

/// A segment must be within its region.
pub fn segment_outside_region<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    let (ours, theirs) = (stage.blank(64), stage.peer.blank(4096));
    let places = [(0, 65), (64, 1), (100, 8), (usize::MAX, 8), (8, usize::MAX)];
    for (offset, length) in places {
        let mut link = stage.link(RC);
        let write = Operation::Write {
            remote: theirs.at(0),
            immediate: None,
        };
        let pieces = [piece(&ours, offset, length)];
        let payload = Payload::Segments(&pieces);
        let request = Request::<D>::new(1, write, payload, SendFlags::SIGNALED);
        match link.local.queue_pair.post_send(&[request]) {
            Ok(()) => {
                let status = stage.failed(&mut link, 1);
                assert_eq!(status, CompletionStatus::LocalProtection);
            }
            Err(error) => assert!(
                matches!(
                    error.kind,
                    PostErrorKind::Segment(0) | PostErrorKind::Length { .. }
                ),
                "{error}"
            ),
        }
    }
    unchanged(stage, theirs);
    Ok(())
}

/// READs and atomics write only into regions with LOCAL_WRITE.
pub fn read_into_constant_region<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::READ)?;
    let theirs = stage.peer.blank(8);
    stage.peer.write(theirs, 0, &[5; 8]);
    let ours = stage.region(64, Access::empty());
    for (operation, access) in remote_verbs(stage, theirs.at(0)) {
        if access != Access::REMOTE_WRITE {
            let mut link = stage.link(RC);
            locally_refused(stage, &mut link, operation, piece(&ours, 0, 8));
        }
    }
    let mut bytes = [1; 64];
    ours.memory().read(0, &mut bytes);
    assert_eq!(bytes, [0; 64]);
    Ok(())
}

/// A queue pair uses only local regions of its own protection domain.
pub fn local_region_of_another_domain<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    let theirs = stage.peer.blank(64);
    let other = stage.device.create_protection_domain().expect("a domain");
    let foreign = (stage.device)
        .allocate_region(&other, 64, Access::LOCAL_WRITE)
        .expect("a region");
    foreign.memory().fill(0, 64, 1);
    let mut link = stage.link(RC);
    let write = Operation::Write {
        remote: theirs.at(0),
        immediate: None,
    };
    locally_refused(stage, &mut link, write, piece(&foreign, 0, 8));
    unchanged(stage, theirs);
    Ok(())
}

/// Dropping a local region while a request that names it waits is harmless: the request completes, successfully with
/// the right bytes or as [`CompletionStatus::LocalProtection`].
pub fn region_dropped_while_posted<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let mut link = stage.link(RC);
    let target = stage.peer.blank(4096);
    let ours = stage.holding(&[3; 4096]);
    let plain = Operation::Send { immediate: None };
    link.local.post(1, plain, &[piece(&ours, 0, 4096)]);
    drop(ours);
    stage.peer.receive(link.remote, 1, &[(target, 0, 4096)]);
    let completion = stage.ours(&mut link);
    match completion.status {
        CompletionStatus::Success => {
            stage.arrived(&mut link, 1);
            assert!(stage.peer.read(target, 0, 4096) == [3; 4096], "other bytes");
        }
        status => assert_eq!(status, CompletionStatus::LocalProtection),
    }
    Ok(())
}

/// RECEIVEs write only into regions of their own domain with LOCAL_WRITE, and only within them. Both refusal when
/// posted and [`CompletionStatus::LocalProtection`] when a message arrives are accepted; the memory does not change.
pub fn receive_into_wrong_memory<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let other = stage.device.create_protection_domain().expect("a domain");
    let foreign = (stage.device)
        .allocate_region(&other, 64, Access::LOCAL_WRITE)
        .expect("a region");
    let (constant, small) = (stage.region(64, Access::empty()), stage.blank(64));
    let message = stage.peer.blank(8);
    stage.peer.write(message, 0, &[1; 8]);
    let wrong = [
        piece(&foreign, 0, 8),
        piece(&constant, 0, 8),
        piece(&small, 60, 8),
        piece(&small, usize::MAX, 8),
    ];
    for segment in wrong {
        let mut link = stage.link(RC);
        let request = crate::ReceiveRequest {
            id: 1,
            segments: &[segment],
        };
        match link.local.queue_pair.post_receive(&[request]) {
            Err(error) => assert_eq!(error.kind, PostErrorKind::Segment(0)),
            Ok(()) => {
                stage.peer.send(link.remote, 1, false, &[(message, 0, 8)]);
                let status = stage.failed(&mut link, 1);
                assert_eq!(status, CompletionStatus::LocalProtection);
            }
        }
    }
    for region in [&foreign, &constant, &small] {
        let mut bytes = [1; 64];
        region.memory().read(0, &mut bytes);
        assert_eq!(bytes, [0; 64]);
    }
    Ok(())
}

/// Dropping a local region while a RECEIVE that names it waits is harmless: the RECEIVE completes, successfully or as
/// [`CompletionStatus::LocalProtection`].
pub fn receive_region_dropped_while_posted<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let mut link = stage.link(RC);
    let message = stage.peer.blank(4096);
    let inbox = stage.blank(4096);
    link.local.receive(1, &[piece(&inbox, 0, 4096)]);
    drop(inbox);
    let successor = stage.blank(4096);
    stage.peer.write(message, 0, &[1; 4096]);
    stage
        .peer
        .send(link.remote, 1, false, &[(message, 0, 4096)]);
    let completion = stage.ours(&mut link);
    assert_eq!(completion.id, 1);
    assert!(
        matches!(
            completion.status,
            CompletionStatus::Success | CompletionStatus::LocalProtection
        ),
        "{completion:?}"
    );
    let mut bytes = [1; 4096];
    successor.memory().read(0, &mut bytes);
    assert!(bytes == [0; 4096], "the message came into another region");
    Ok(())
}
