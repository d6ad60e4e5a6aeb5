//! Which memory of its own a peer lets others access.

use crate::{
    Access, CompletionStatus, Device, Operation, QueuePair, QueuePairState, Region, RemoteAddress,
    RemoteKey, Transport, Verbs,
};

use super::{piece, Options, Outcome, PeerRegion, Stage};

const RC: Transport = Transport::ReliableConnection;

/// One request of each remote verb that the device supports.
pub(super) fn remote_verbs<D: Device>(
    stage: &Stage<D>,
    remote: RemoteAddress,
) -> Vec<(Operation, Access)> {
    let verbs = stage.device.attributes().transports.rc;
    let write = |immediate| Operation::Write { remote, immediate };
    let swap = Operation::CompareAndSwap {
        remote,
        compare: 0,
        swap: 1,
    };
    let add = Operation::FetchAndAdd { remote, add: 1 };
    let all = [
        (Verbs::WRITE, write(None), Access::REMOTE_WRITE),
        (
            Verbs::WRITE_WITH_IMMEDIATE,
            write(Some(1)),
            Access::REMOTE_WRITE,
        ),
        (Verbs::READ, Operation::Read { remote }, Access::REMOTE_READ),
        (Verbs::ATOMIC, swap, Access::REMOTE_ATOMIC),
        (Verbs::ATOMIC, add, Access::REMOTE_ATOMIC),
    ];
    let here = all.into_iter().filter(|(verb, ..)| verbs.contains(*verb));
    here.map(|(_, operation, access)| (operation, access))
        .collect()
}

/// Posts `operation` on a new link; it must fail with a status of `allowed` and leave the queue pair in error.
fn refused<D: Device>(
    stage: &mut Stage<D>,
    theirs: &Options,
    operation: Operation,
    allowed: &[CompletionStatus],
) {
    let mut link = stage.link_with(&Options::new(RC), theirs);
    // For a WRITE with immediate data, which must not fail for lack of it.
    stage.peer.receive(link.remote, 1, &[]);
    let ours = stage.holding(&[0xee; 8]);
    link.local.post(1, operation, &[piece(&ours, 0, 8)]);
    let status = stage.failed(&mut link, 1);
    assert!(allowed.contains(&status), "{operation:?}: {status}");
    assert_eq!(link.local.queue_pair.state(), QueuePairState::Error);
    let mut bytes = [0; 8];
    ours.memory().read(0, &mut bytes);
    assert_eq!(bytes, [0xee; 8], "{operation:?} brought bytes");
}

fn refused_access<D: Device>(stage: &mut Stage<D>, remote: RemoteAddress) {
    for (operation, _) in remote_verbs(stage, remote) {
        refused(
            stage,
            &Options::new(RC),
            operation,
            &[CompletionStatus::RemoteAccess],
        );
    }
}

pub(super) fn unchanged<D: Device>(stage: &mut Stage<D>, region: PeerRegion) {
    let bytes = stage.peer.read(region, 0, region.length);
    assert!(bytes.iter().all(|&byte| byte == 0), "memory was changed");
}

/// A key that was never issued is refused for every verb.
pub fn unknown_key<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    let region = stage.peer.blank(64);
    for flip in [1, 1 << 8, 1 << 31, u32::MAX] {
        let mut remote = region.at(0);
        remote.key = RemoteKey(remote.key.0 ^ flip);
        refused_access(stage, remote);
    }
    unchanged(stage, region);
    Ok(())
}

/// Any byte outside the region is refused: below, above, across the end, and where the address wraps.
pub fn out_of_bounds<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    let region = stage.peer.blank(4096);
    let key = region.remote.key;
    let base = region.remote.address;
    for address in [
        base.wrapping_sub(8),
        base.wrapping_sub(4096),
        base + 4096,
        base + (1 << 40),
        0u64.wrapping_sub(8),
    ] {
        refused_access(stage, RemoteAddress { address, key });
    }
    // Not for atomics, which must not fail for their alignment instead.
    for address in [base + 4089, base.wrapping_sub(1), u64::MAX - 3] {
        let remote = RemoteAddress { address, key };
        for (operation, access) in remote_verbs(stage, remote) {
            if access != Access::REMOTE_ATOMIC {
                let allowed = [CompletionStatus::RemoteAccess];
                refused(stage, &Options::new(RC), operation, &allowed);
            }
        }
    }
    unchanged(stage, region);
    Ok(())
}

/// The last bytes of a region are in bounds.
pub fn last_bytes_are_inside<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    let mut link = stage.link(RC);
    let region = stage.peer.blank(5000);
    let ours = stage.holding(&[7; 8]);
    let remote = region.at(4992);
    let write = Operation::Write {
        remote,
        immediate: None,
    };
    link.local.post(1, write, &[piece(&ours, 0, 8)]);
    stage.done(&mut link, 1);
    assert_eq!(stage.peer.read(region, 4992, 8), [7; 8]);
    assert_eq!(stage.peer.read(region, 4984, 8), [0; 8]);
    Ok(())
}

/// A region grants only the access that it was registered with.
pub fn missing_region_access<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    let all = Access::all();
    let any = remote_verbs(stage, nowhere());
    for (at, (_, needed)) in any.into_iter().enumerate() {
        let region = stage.peer.region(64, all - needed, 0);
        let (operation, _) = remote_verbs(stage, region.at(0)).swap_remove(at);
        refused(
            stage,
            &Options::new(RC),
            operation,
            &[CompletionStatus::RemoteAccess],
        );
        unchanged(stage, region);
        let local_only = stage.peer.region(64, Access::LOCAL_WRITE, 0);
        let (operation, _) = remote_verbs(stage, local_only.at(0)).swap_remove(at);
        refused(
            stage,
            &Options::new(RC),
            operation,
            &[CompletionStatus::RemoteAccess],
        );
        unchanged(stage, local_only);
    }
    Ok(())
}

fn nowhere() -> RemoteAddress {
    RemoteAddress {
        address: 0,
        key: RemoteKey(0),
    }
}

/// A queue pair allows only the access with which it was moved to Init; the refusal may be an access error or an
/// invalid request.
pub fn missing_queue_pair_access<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    let region = stage.peer.blank(64);
    for (operation, needed) in remote_verbs(stage, region.at(0)) {
        let mut theirs = Options::new(RC);
        theirs.access = Access::all() - needed;
        let allowed = [
            CompletionStatus::RemoteAccess,
            CompletionStatus::RemoteInvalidRequest,
        ];
        refused(stage, &theirs, operation, &allowed);
    }
    unchanged(stage, region);
    Ok(())
}

/// The key of a region in a protection domain other than the queue pair's is refused.
pub fn foreign_protection_domain<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    let region = stage.peer.region(64, Access::all(), 1);
    refused_access(stage, region.at(0));
    unchanged(stage, region);
    Ok(())
}

/// When the owner drops a region, its key becomes invalid, even for a peer that has used it before.
pub fn revoked_region<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    let region = stage.peer.blank(8192);
    let mut link = stage.link(RC);
    let ours = stage.holding(&[1; 8]);
    let remote = region.at(0);
    let write = Operation::Write {
        remote,
        immediate: None,
    };
    link.local.post(1, write, &[piece(&ours, 0, 8)]);
    stage.done(&mut link, 1);
    stage.peer.drop_region(region);
    link.local.post(2, write, &[piece(&ours, 0, 8)]);
    assert_eq!(stage.failed(&mut link, 2), CompletionStatus::RemoteAccess);
    // A new region of the same size must not inherit the old key.
    let successor = stage.peer.blank(8192);
    refused_access(stage, remote);
    unchanged(stage, successor);
    Ok(())
}
