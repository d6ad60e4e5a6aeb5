//! The C interface of Dunlin, on top of the crate `dunlin` alone.
//!
//! C programs include `include/dunlin.h`, which cbindgen generates from this source with its comments: they are written
//! for readers of the header. `include/dunlin.hpp` builds on that header, for C++17.
//!
//! Unsafe code is the purpose of this crate. It is confined to the modules of functions that C calls and to `given`,
//! which turns what a caller passes into references. Each function that can fail is one call of `given::enter`, which
//! catches panics and stores the error. Code that touches no pointer of the caller is in the safe module [`error`].
#![deny(unsafe_code)]

// In the order of the header; the blank lines keep rustfmt from sorting them.
pub mod version;

pub mod error;
pub mod errors;

pub mod options;

pub mod client;

pub mod calls;

pub mod answers;
pub mod pipeline;

pub mod region;

pub mod server;

pub mod handlers;

pub mod grants;

mod given;
mod stopping;

/// What dunlin.h says about threads: these may be used by several at once, and the last two may be passed from one to
/// another.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    const fn is_handed_on<T: Send>() {}
    is_shared::<client::Client>();
    is_shared::<client::Reply>();
    is_shared::<error::Error>();
    is_shared::<pipeline::Pipeline>();
    is_shared::<region::Region>();
    is_shared::<server::Server>();
    is_handed_on::<dunlin::OwnedRequest>();
    is_handed_on::<dunlin::OwnedResponder>();
};
