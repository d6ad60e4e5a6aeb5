//! Mapped memory of the peer: [`QueuePair::map_peer`].

use crate::{Access, Device, Operation, PeerMemory, QueuePair, RemoteAddress, Transport, Verbs};

use super::protection::unchanged;
use super::{pattern, piece, Link, Outcome, PeerRegion, Stage};

const RC: Transport = Transport::ReliableConnection;
const BYTES: usize = 4096;

/// The type of the mapping of the connected queue pair.
type Mapped<D> = <<D as Device>::QueuePair as QueuePair>::Mapped;

fn needs_maps<D: Device>(stage: &Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    if D::QueuePair::MAPS_PEERS {
        Ok(())
    } else {
        Err(stage.lacks("memory of peers that is mapped"))
    }
}

fn write_once<D: Device>(stage: &mut Stage<D>, link: &mut Link<D>, remote: RemoteAddress) {
    let ours = stage.holding(&[0; 8]);
    let write = Operation::Write {
        remote,
        immediate: None,
    };
    link.local.post(1, write, &[piece(&ours, 0, 8)]);
    stage.done(link, 1);
}

/// A region of the peer, the link by which it was written, and its mapping.
fn mapped<D: Device>(stage: &mut Stage<D>) -> (PeerRegion, Link<D>, Mapped<D>) {
    let region = stage.peer.blank(BYTES);
    let mut link = stage.link(RC);
    write_once(stage, &mut link, region.at(0));
    let mapped = link.local.queue_pair.map_peer(region.at(0), BYTES);
    let mapped = mapped.expect("memory that was written by this queue pair is mapped");
    assert!(mapped.is_open());
    (region, link, mapped)
}

/// Stored bytes arrive at the peer, at their offset and nowhere else; a hint changes nothing.
pub fn stores_land<D: Device>(stage: &mut Stage<D>) -> Outcome {
    needs_maps(stage)?;
    let (region, _link, mapped) = mapped(stage);
    mapped.expect(0, BYTES);
    mapped.expect(BYTES - 8, 4 * BYTES);
    mapped.expect(usize::MAX, 8);
    unchanged(stage, region);
    for (seed, offset, length) in [(1, 0, 1), (2, 65, 63), (3, 200, 1777), (4, BYTES - 9, 9)] {
        let bytes = pattern(seed, length);
        mapped.store(offset, &bytes);
        assert_eq!(stage.peer.read(region, offset, length), bytes);
    }
    assert_eq!(stage.peer.read(region, 1, 64), vec![0; 64]);
    assert_eq!(stage.peer.read(region, 128, 72), vec![0; 72]);
    Ok(())
}

/// Loads return the peer's bytes, also from a region that may only be read. Nothing else is mapped for loading, such as
/// a region that may only be written, and loading from a region that is gone reports that.
pub fn loads_see_what_stands_there<D: Device>(stage: &mut Stage<D>) -> Outcome {
    needs_maps(stage)?;
    let constant = stage.peer.region(BYTES, Access::REMOTE_READ, 0);
    let mut link = stage.link(RC);
    stage.peer.write(constant, 0, &pattern(7, BYTES));
    let remote = constant.at(0);
    let ours = stage.blank(8);
    link.local
        .post(1, Operation::Read { remote }, &[piece(&ours, 0, 8)]);
    stage.done(&mut link, 1);
    let pair = &mut link.local.queue_pair;
    let source = pair.map_peer_source(remote, BYTES);
    let source = source.expect("memory that was read by this queue pair is mapped");
    assert!(source.is_open());
    for (offset, length) in [(0, 1), (63, 66), (0, BYTES), (BYTES - 9, 9)] {
        let mut loaded = vec![0; length];
        assert!(source.load(offset, &mut loaded));
        assert_eq!(loaded, stage.peer.read(constant, offset, length));
    }
    assert!(pair.map_peer_source(remote, BYTES + 1).is_none());
    let mut unknown = remote;
    unknown.key.0 ^= 1 << 20;
    assert!(pair.map_peer_source(unknown, 8).is_none());
    let secret = stage.peer.region(64, Access::REMOTE_WRITE, 0);
    write_once(stage, &mut link, secret.at(0));
    let pair = &mut link.local.queue_pair;
    assert!(pair.map_peer_source(secret.at(0), 64).is_none());
    stage.peer.drop_region(constant);
    assert!(!source.is_open());
    assert!(!source.load(0, &mut [0; 64]));
    Ok(())
}

/// Only memory granted for writing is mapped: not beyond a region's end, by an unknown key, or in a region that may
/// only be read.
pub fn only_what_is_granted<D: Device>(stage: &mut Stage<D>) -> Outcome {
    needs_maps(stage)?;
    let (region, mut link, _mapped) = mapped(stage);
    let pair = &mut link.local.queue_pair;
    assert!(pair.map_peer(region.at(0), BYTES + 1).is_none());
    assert!(pair.map_peer(region.at(1), BYTES).is_none());
    let mut unknown = region.at(0);
    unknown.key.0 ^= 1 << 20;
    assert!(pair.map_peer(unknown, 8).is_none());
    let constant = stage.peer.region(64, Access::REMOTE_READ, 0);
    let ours = stage.blank(64);
    let remote = constant.at(0);
    link.local
        .post(2, Operation::Read { remote }, &[piece(&ours, 0, 64)]);
    stage.done(&mut link, 2);
    assert!(link.local.queue_pair.map_peer(remote, 64).is_none());
    Ok(())
}

/// A mapping is closed once the owner has dropped the region, and does not apply to a successor of the region.
pub fn closed_with_its_region<D: Device>(stage: &mut Stage<D>) -> Outcome {
    needs_maps(stage)?;
    let (region, mut link, mapped) = mapped(stage);
    stage.peer.drop_region(region);
    assert!(!mapped.is_open());
    let successor = stage.peer.blank(BYTES);
    assert!(!mapped.is_open());
    assert!(link
        .local
        .queue_pair
        .map_peer(region.at(0), BYTES)
        .is_none_or(|again| !again.is_open()));
    unchanged(stage, successor);
    Ok(())
}

/// A mapping is closed with its queue pair: after an error, and when the queue pair is connected again.
pub fn closed_with_its_queue_pair<D: Device>(stage: &mut Stage<D>) -> Outcome {
    needs_maps(stage)?;
    let (_, mut link, mapped) = mapped(stage);
    link.local.queue_pair.to_error();
    assert!(!mapped.is_open());
    link.local.queue_pair.to_reset();
    assert!(!mapped.is_open());
    Ok(())
}

/// A mapping is closed when the peer's queue pair is gone.
pub fn closed_with_its_peer<D: Device>(stage: &mut Stage<D>) -> Outcome {
    needs_maps(stage)?;
    let (_, link, mapped) = mapped(stage);
    // The peer's commands are executed beside another endpoint of it, because its own is gone.
    let spare = stage.link(RC);
    stage.peer.drop_endpoint(link.remote);
    super::wait("the end of the peer's queue pair", || {
        stage.step(&spare);
        (!mapped.is_open()).then_some(())
    });
    Ok(())
}
