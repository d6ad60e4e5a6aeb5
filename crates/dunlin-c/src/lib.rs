//! The C interface of Dunlin, over the crate `dunlin` alone.
//!
//! What a C program sees is `include/dunlin.h`, which cbindgen makes of this source, comments included: they are
//! written for its readers. `include/dunlin.hpp` stands on that header, for C++17.
//!
//! Unsafe code is what this crate is about, and stands in the modules of functions that C calls and in `given`, which
//! turns what a caller hands over into references. Each function that can fail is one call of `given::enter`: there its
//! panics end, and there its error goes to its place. What does not touch a pointer of the caller is in the safe module
//! [`error`].
#![deny(unsafe_code)]

// In the order of the header, which is why they stand alone.
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

/// What dunlin.h says of threads: these may be used by several at once, and the last two be handed from one to another.
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
