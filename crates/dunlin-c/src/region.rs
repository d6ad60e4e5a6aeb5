//! Regions: memory of a server that clients read and write without involving its processor.
#![allow(unsafe_code)]
// The contract of all functions is stated once, at the top of dunlin.h.
#![allow(clippy::missing_safety_doc)]

use std::ffi::{c_char, c_void};
use std::time::Duration;

use dunlin::RemoteRegion;

use crate::client::Client;
use crate::error::{Code, Error};
use crate::given::{self, Place};
use crate::options;

/// A region of a server's memory, attached by a client. Any thread may use it, several at once.
///
/// Operations that are outstanding at the same time are not ordered, and one of more than 8 bytes is not atomic against
/// others. Atomics are atomic among themselves.
#[derive(Debug)]
pub struct Region {
    region: RemoteRegion,
    deadline: Duration,
}

impl Region {
    fn within(&self, deadline_us: u64) -> RemoteRegion {
        self.region
            .within(options::deadline(deadline_us, self.deadline))
    }
}

/// Attaches the region that the server grants under this name.
#[no_mangle]
pub unsafe extern "C" fn dunlin_region_attach(
    client: *const Client,
    name: *const c_char,
    region: *mut *mut Region,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: pointers are as dunlin.h asks, here and in all functions of this file.
        let place = unsafe { Place::for_object(region, "region") }?;
        // SAFETY: as above.
        let client = unsafe { given::shared(client, "client") }?;
        // SAFETY: as above.
        let name = unsafe { given::text(name, "name") }?;
        place.give(Region {
            region: client.client.attach(name)?,
            deadline: client.deadline,
        });
        Ok(Code::Ok)
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Frees a region: the client's view, not the server's memory.
#[no_mangle]
pub unsafe extern "C" fn dunlin_region_free(region: *mut Region) {
    // SAFETY: NULL or the caller's, which gives it up.
    unsafe { given::take_back(region) }
}

/// Returns the number of bytes of a region; 0 for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_region_length(region: *const Region) -> u64 {
    // SAFETY: as above.
    unsafe { region.as_ref() }.map_or(0, |region| region.region.len())
}

/// Reads `length` bytes from `offset` into `buffer`. If it fails, the buffer is unchanged.
#[no_mangle]
pub unsafe extern "C" fn dunlin_region_read(
    region: *const Region,
    offset: u64,
    buffer: *mut c_void,
    length: usize,
    deadline_us: u64,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: as above.
        let region = unsafe { given::shared(region, "region") }?;
        // SAFETY: as above.
        let room = unsafe { given::room(buffer, length, "buffer") }?;
        let bytes = region.within(deadline_us).read(offset, length)?;
        given::fill(room, &bytes);
        Ok(Code::Ok)
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Writes `length` bytes at `data` to `offset`. When it returns they are in the region. If the connection was lost,
/// all, some or none of them may have been written.
#[no_mangle]
pub unsafe extern "C" fn dunlin_region_write(
    region: *const Region,
    offset: u64,
    data: *const c_void,
    length: usize,
    deadline_us: u64,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: as above.
        let region = unsafe { given::shared(region, "region") }?;
        // SAFETY: as above.
        let data = unsafe { given::bytes(data, length, "data") }?;
        region.within(deadline_us).write(offset, data)?;
        Ok(Code::Ok)
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Adds to the 8 bytes at `offset`, a number in the byte order of the server's machine. `before`, which may be NULL,
/// gets the previous value. If the connection was lost, it may have been added.
#[no_mangle]
pub unsafe extern "C" fn dunlin_region_fetch_add(
    region: *const Region,
    offset: u64,
    add: u64,
    deadline_us: u64,
    before: *mut u64,
    error: *mut *mut Error,
) -> Code {
    let operate = |region: &RemoteRegion| region.fetch_add(offset, add);
    // SAFETY: as above.
    unsafe { atomic(region, deadline_us, before, error, operate) }
}

/// Replaces the 8 bytes at `offset` by `swap` if they are equal to `compare`. `before`, which may be NULL, gets the
/// previous value: they were replaced if it equals `compare`. If the connection was lost, they may have been replaced.
#[no_mangle]
pub unsafe extern "C" fn dunlin_region_compare_swap(
    region: *const Region,
    offset: u64,
    compare: u64,
    swap: u64,
    deadline_us: u64,
    before: *mut u64,
    error: *mut *mut Error,
) -> Code {
    let operate = |region: &RemoteRegion| region.compare_and_swap(offset, compare, swap);
    // SAFETY: as above.
    unsafe { atomic(region, deadline_us, before, error, operate) }
}

/// # Safety
/// As dunlin.h asks.
unsafe fn atomic(
    region: *const Region,
    deadline_us: u64,
    before: *mut u64,
    error: *mut *mut Error,
    operate: impl FnOnce(&RemoteRegion) -> Result<u64, dunlin::CallError>,
) -> Code {
    let body = || {
        // SAFETY: as above.
        let region = unsafe { given::shared(region, "region") }?;
        let found = operate(&region.within(deadline_us))?;
        // SAFETY: NULL, which is no error here, or valid for a write.
        if let Ok(place) = unsafe { Place::new(before, "before") } {
            place.put(found);
        }
        Ok(Code::Ok)
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}
