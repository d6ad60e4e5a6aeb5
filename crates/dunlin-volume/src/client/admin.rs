//! Operations on a whole volume: creating, checking, removing it.

use super::calls::Calls;
use super::link::Link;
use super::open::{self, of_all};
use super::repair::{self, Findings, Members};
use super::{VolumeError, VolumeOptions};
use crate::types::{Shape, BLOCK_BYTES, CHUNK_BLOCKS, MOST_SERVERS};
use crate::wire::{Described, Named};

/// Number of copies if there are three or more servers.
const COPIES: u8 = 3;

/// Creates a volume of this many bytes on these servers: three copies, or one if there is a single server.
///
/// # Errors
/// When a server does not answer, already has such a volume, or has no space. The volume is then removed from the other
/// servers.
pub fn create(
    name: &str,
    bytes: u64,
    addresses: &[String],
    options: &VolumeOptions,
) -> Result<Shape, VolumeError> {
    if bytes % BLOCK_BYTES as u64 != 0 {
        return Err(VolumeError::Unaligned(bytes));
    }
    let servers = addresses.len();
    let copies = if servers == 1 { 1 } else { COPIES };
    if servers > MOST_SERVERS {
        return Err(crate::types::ShapeError::Servers { servers, copies }.into());
    }
    let shape = Shape {
        id: crate::random().map_err(|error| VolumeError::system(&error))?,
        name: name.to_owned(),
        blocks: bytes / BLOCK_BYTES as u64,
        chunk_blocks: CHUNK_BLOCKS,
        copies,
        servers: servers as u8,
    };
    shape.validate()?;
    let links = of_all(addresses, |_, address| {
        Link::connect(address, options, &Calls::default())
    });
    let links: Vec<Link> = links.into_iter().collect::<Result<_, _>>()?;
    for (place, link) in links.iter().enumerate() {
        let shape = shape.clone();
        let described = Described {
            shape,
            place: place as u8,
            epoch: 0,
            owner: 0,
            whole: true,
            settled: 0,
        };
        if let Err(error) = link.create(&described) {
            let named = Named {
                volume: described.shape.id,
                epoch: 0,
            };
            // It may be there at the last one, too.
            for made in &links[..=place] {
                // The error that is returned is the first one.
                let _ = made.remove(&named);
            }
            return Err(error);
        }
    }
    Ok(shape)
}

/// Compares all copies of all blocks, on their servers, with each other and with their checksums. Must run while nobody
/// writes: concurrent writes may be reported as faults.
///
/// # Errors
/// When a server does not answer.
pub fn check(
    name: &str,
    addresses: &[String],
    options: &VolumeOptions,
) -> Result<Findings, VolumeError> {
    let found = of_all(addresses, |_, address| {
        let link = Link::connect(address, options, &Calls::default())?;
        let described = link.describe(name)?;
        Ok((link, described))
    });
    let shape = open::agree(name, &found)?;
    let links = found
        .into_iter()
        .map(|found| found.map(|(link, _)| Some(link)));
    let links: Vec<Option<Link>> = links.collect::<Result<_, _>>()?;
    repair::compare_all(&Members {
        shape: &shape,
        epoch: 0,
        links: &links,
    })
}

/// Removes a volume, after beginning an epoch on all servers that have it, so that nobody uses it any more. Servers
/// without the volume are skipped: a removal that was interrupted can be repeated.
///
/// # Errors
/// When no server has it, or one does not answer: all of them must.
pub fn remove(
    name: &str,
    addresses: &[String],
    options: &VolumeOptions,
) -> Result<(), VolumeError> {
    let found = of_all(addresses, |_, address| {
        let link = Link::connect(address, options, &Calls::default())?;
        let described = link.describe(name)?;
        Ok((link, described))
    });
    let shape = open::agree(name, &found)?;
    let mut have = Vec::with_capacity(found.len());
    for found in found {
        match found {
            Ok((link, known)) => have.push((link, known.epoch)),
            Err(error) if error.is_unknown() => {}
            Err(error) => return Err(error),
        }
    }
    let newest = have.iter().map(|(_, epoch)| *epoch).max();
    let promise = open::promise(shape.id, newest.unwrap_or(0) + 1, None)?;
    for (link, _) in &have {
        link.promise(&promise)?;
    }
    let named = Named {
        volume: shape.id,
        epoch: promise.epoch,
    };
    have.iter().try_for_each(|(link, _)| link.remove(&named))
}
