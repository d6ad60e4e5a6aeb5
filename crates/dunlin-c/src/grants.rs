//! Memory that a server grants to its clients.
#![allow(unsafe_code)]
// The contract of all functions is stated once, at the top of dunlin.h.
#![allow(clippy::missing_safety_doc)]

use std::ffi::{c_char, c_void};

use crate::error::{Code, Error};
use crate::given;
use crate::server::{lock, wrong_state, Server};

/// Clients may write the region (dunlin_server_region).
pub const DUNLIN_REGION_WRITABLE: u32 = 1;
/// Clients may use atomics on the region (dunlin_server_region).
pub const DUNLIN_REGION_ATOMIC: u32 = 2;

/// Grants `length` bytes of memory to clients under a name of at most 200 bytes. They may read it, and use it as
/// `rights` allows: DUNLIN_REGION_WRITABLE, DUNLIN_REGION_ATOMIC, both or 0. It is allocated, filled with zeros, when
/// the server starts.
///
/// On a device whose grants are mappings (shm), a client that may write any part of the region is trusted with all of
/// it until its process ends: see docs/c.md.
#[no_mangle]
pub unsafe extern "C" fn dunlin_server_region(
    server: *const Server,
    name: *const c_char,
    length: usize,
    rights: u32,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: pointers are as dunlin.h asks, here and in all functions of this file.
        let server = unsafe { given::shared(server, "server") }?;
        // SAFETY: as above.
        let name = unsafe { given::text(name, "name") }?;
        if rights & !(DUNLIN_REGION_WRITABLE | DUNLIN_REGION_ATOMIC) != 0 {
            let words = format!(
                "`rights` is {rights:#x}: this version supports only the values 1 and 2, or both"
            );
            return Err(Error::new(Code::InvalidArgument, words));
        }
        let mut region = dunlin::Region::new(name, length);
        if rights & DUNLIN_REGION_WRITABLE != 0 {
            region = region.writable();
        }
        if rights & DUNLIN_REGION_ATOMIC != 0 {
            region = region.atomic();
        }
        let code = server.build(|builder| builder.region(&region))?;
        lock(&server.regions).push(region);
        Ok(code)
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Copies from a region that the server grants. Clients may change it meanwhile: a copy of more than 8 bytes may mix
/// several states.
#[no_mangle]
pub unsafe extern "C" fn dunlin_server_region_read(
    server: *const Server,
    name: *const c_char,
    offset: u64,
    buffer: *mut c_void,
    length: usize,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: as above.
        let server = unsafe { given::shared(server, "server") }?;
        // SAFETY: as above.
        let name = unsafe { given::text(name, "name") }?;
        // SAFETY: as above.
        let room = unsafe { given::room(buffer, length, "buffer") }?;
        server.with_memory(name, (offset, length), |memory, offset| {
            room.fill(std::mem::MaybeUninit::new(0));
            // SAFETY: every byte of it was written.
            let room = unsafe { &mut *(std::ptr::from_mut(room) as *mut [u8]) };
            memory.read(offset, room);
        })
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Copies into a region that the server grants. Clients may see a partial copy.
#[no_mangle]
pub unsafe extern "C" fn dunlin_server_region_write(
    server: *const Server,
    name: *const c_char,
    offset: u64,
    data: *const c_void,
    length: usize,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: as above.
        let server = unsafe { given::shared(server, "server") }?;
        // SAFETY: as above.
        let name = unsafe { given::text(name, "name") }?;
        // SAFETY: as above.
        let bytes = unsafe { given::bytes(data, length, "data") }?;
        server.with_memory(name, (offset, length), |memory, offset| {
            memory.write(offset, bytes);
        })
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

impl Server {
    fn region(&self, name: &str) -> Result<dunlin::Region, Error> {
        let regions = lock(&self.regions);
        let region = regions.iter().find(|region| region.name() == name);
        region.cloned().ok_or_else(|| {
            let words = format!("this server has no region '{name}': see dunlin_server_region");
            Error::new(Code::UnknownRegion, words)
        })
    }

    /// Runs a function on the memory of a region, after checking the bounds.
    fn with_memory(
        &self,
        name: &str,
        (offset, length): (u64, usize),
        operate: impl FnOnce(&dunlin::Memory, usize),
    ) -> Result<Code, Error> {
        let started_in = self.started_in.get();
        if started_in.is_some_and(|process| !process.is_current()) {
            let words = "this process was forked after the server was started, and the regions belong to the parent";
            return Err(Error::new(Code::Forked, words));
        }
        let region = self.region(name)?;
        let memory = region
            .memory()
            .ok_or_else(|| wrong_state("a region has no memory until its server is started"))?;
        match usize::try_from(offset) {
            Ok(offset) if memory.contains(offset, length) => operate(memory, offset),
            _ => {
                let words = format!(
                    "{length} bytes at offset {offset} exceed the region '{name}' of {} bytes",
                    memory.len()
                );
                return Err(Error::new(Code::RegionBounds, words));
            }
        }
        Ok(Code::Ok)
    }
}
