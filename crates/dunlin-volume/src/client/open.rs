//! Opening a volume: a majority of the copies of every chunk promises an epoch to the new owner, and copies are made
//! equal.

use super::calls::Calls;
use super::link::Link;
use super::repair::{GoesOn, Members};
use super::{VolumeError, VolumeOptions};
use crate::types::{Shape, Version};
use crate::wire::{Described, Named, Promise, PROTOCOL};

/// An open volume.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) shape: Shape,
    pub(super) epoch: u64,
    pub(super) owner: u64,
    /// The servers that are up to date; the others are brought up to date later.
    pub(super) links: Vec<Option<Link>>,
}

/// What an owner must find when it opens its own volume again: nobody else has opened it since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mine {
    pub(super) epoch: u64,
    pub(super) owner: u64,
}

/// Returns the answer of each server, all asked concurrently.
pub(super) fn of_all<T: Send>(
    addresses: &[String],
    ask: impl Fn(usize, &str) -> Result<T, VolumeError> + Sync,
) -> Vec<Result<T, VolumeError>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = addresses
            .iter()
            .enumerate()
            .map(|(server, address)| {
                let ask = &ask;
                scope.spawn(move || ask(server, address))
            })
            .collect();
        let panicked = || Err(VolumeError::System("a thread panicked".into()));
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| panicked()))
            .collect()
    })
}

/// A server with its description of the volume.
type Found = (Link, Described);

/// Returns the volume's shape, if all servers that have it agree, and the servers whose copies are whole.
pub(super) fn agree(
    name: &str,
    found: &[Result<Found, VolumeError>],
) -> Result<Shape, VolumeError> {
    let mut known = found.iter().enumerate().filter_map(|(server, found)| {
        let (link, described) = found.as_ref().ok()?;
        Some((server, link, described))
    });
    let Some((_, _, one)) = known.clone().next() else {
        let errors = || found.iter().filter_map(|found| found.as_ref().err());
        return match errors().find(|error| !error.is_unknown()) {
            Some(error) => Err(error.clone()),
            None => Err(VolumeError::Unknown(name.to_owned())),
        };
    };
    if usize::from(one.shape.servers) != found.len() {
        let (made, given) = (one.shape.servers, found.len());
        let words = format!("the volume was created on {made} servers, but {given} are given");
        return Err(VolumeError::Order(words));
    }
    known.try_for_each(|(server, link, described)| {
        let address = link.address();
        if described.shape != one.shape {
            let words = format!("{address} has a different volume of this name");
            return Err(VolumeError::Order(words));
        }
        match usize::from(described.place) == server {
            true => Ok(()),
            false => {
                let place = described.place + 1;
                Err(VolumeError::Order(format!(
                    "{address} is server number {place} of the volume"
                )))
            }
        }
    })?;
    Ok(one.shape.clone())
}

/// Whether these servers have a majority of the copies of every chunk; the error is the number of available copies of
/// the worst chunk.
pub(super) fn is_enough(shape: &Shape, servers: u64) -> Result<(), u32> {
    // Chunks are placed round robin on the servers, so there are as many different sets as servers.
    let have = (0..u64::from(shape.servers)).map(|chunk| shape.set_of(chunk) & servers);
    let least = have.map(u64::count_ones).min().unwrap_or(0);
    if least >= shape.majority() {
        Ok(())
    } else {
        Err(least)
    }
}

fn too_few<T>(shape: &Shape, have: u32, results: &[Result<T, VolumeError>]) -> VolumeError {
    let why = results.iter().find_map(|result| result.as_ref().err());
    VolumeError::TooFew {
        have,
        want: shape.majority(),
        why: why.map_or_else(
            || "the others have lost their data and are not rebuilt yet".to_owned(),
            ToString::to_string,
        ),
    }
}

fn set<'a, T: 'a>(some: impl IntoIterator<Item = &'a Option<T>>) -> u64 {
    let some = some.into_iter().enumerate();
    some.filter(|(_, one)| one.is_some())
        .fold(0, |set, (server, _)| set | 1 << server)
}

/// The promise requested from servers, for a new owner unless one is given.
pub(super) fn promise(volume: u64, epoch: u64, mine: Option<Mine>) -> Result<Promise, VolumeError> {
    if epoch > Version::MOST_EPOCHS {
        return Err(VolumeError::Exhausted(
            "opens of this volume: copy it to a new one",
        ));
    }
    let owner = mine.map_or_else(crate::random, |mine| Ok(mine.owner));
    let owner = owner.map_err(|error| VolumeError::system(&error))?;
    Ok(Promise {
        volume,
        epoch,
        owner,
        protocol: PROTOCOL,
    })
}

/// Opens a volume, and replaces any previous owner. Afterwards a majority has promised the epoch, and all servers that
/// have are equal in every block, and remember in which epoch they were made so. `goes_on` is called while they are
/// made equal.
pub(super) fn open(
    name: &str,
    addresses: &[String],
    (options, calls): (&VolumeOptions, &Calls),
    mine: Option<Mine>,
    goes_on: GoesOn<'_>,
) -> Result<Opened, VolumeError> {
    let found = of_all(addresses, |_, address| {
        let link = Link::connect(address, options, calls)?;
        let described = link.describe(name)?;
        Ok((link, described))
    });
    let shape = agree(name, &found)?;
    let described = || {
        found
            .iter()
            .filter_map(|found| found.as_ref().ok().map(|(_, known)| known))
    };
    let newest = described().map(|known| known.epoch).max().unwrap_or(0);
    // The caller's own attempts that did not reach a majority do not count as another owner.
    let is_others =
        |mine: Mine, known: &Described| known.epoch >= mine.epoch && known.owner != mine.owner;
    if mine.is_some_and(|mine| described().any(|known| is_others(mine, known))) {
        return Err(VolumeError::Replaced);
    }
    // An attempt that cannot succeed must not use up an epoch: while servers are away there is one every 100 ms.
    let whole = found
        .iter()
        .enumerate()
        .fold(0, |set, (server, found)| match found {
            Ok((_, known)) if known.whole => set | 1 << server,
            _ => set,
        });
    is_enough(&shape, whole).map_err(|have| too_few(&shape, have, &found))?;
    let epoch = newest.max(mine.map_or(0, |mine| mine.epoch)) + 1;
    let promise = promise(shape.id, epoch, mine)?;
    let promised = of_all(addresses, |server, _| match &found[server] {
        Ok((link, known)) => {
            // An earlier owner may have settled the copy until it promised this epoch.
            let promised = link.promise(&promise)?;
            // It may have restarted since, without its data.
            let is_whole = known.whole && promised.whole;
            Ok(is_whole.then(|| (link.clone(), promised.settled)))
        }
        Err(error) => Err(error.clone()),
    });
    if mine.is_some()
        && promised
            .iter()
            .any(|result| matches!(result, Err(VolumeError::Replaced)))
    {
        return Err(VolumeError::Replaced);
    }
    let links: Vec<_> = promised
        .iter()
        .map(|result| Some(result.as_ref().ok()?.as_ref()?.0.clone()))
        .collect();
    is_enough(&shape, set(&links)).map_err(|have| too_few(&shape, have, &promised))?;
    let members = Members {
        shape: &shape,
        epoch,
        links: &links,
    };
    let settled: Vec<u64> = promised
        .iter()
        .map(|result| match result {
            Ok(Some((_, settled))) => *settled,
            _ => 0,
        })
        .collect();
    members.settle(set(&links), &settled, goes_on)?;
    // Before anything is read: from now on the members' current data takes precedence over additional data of another
    // copy.
    let named = Named {
        volume: shape.id,
        epoch,
    };
    let joined = of_all(addresses, |server, _| {
        links[server]
            .as_ref()
            .map_or(Ok(()), |link| link.join(&named))
    });
    joined.into_iter().collect::<Result<(), _>>()?;
    Ok(Opened {
        shape,
        epoch,
        owner: promise.owner,
        links,
    })
}
