//! Dunlin for Python: `dunlin._dunlin`, the extension module below the package in `python/dunlin`.
//!
//! This module transfers bytes and waits; convenient classes (context managers, asyncio, decorators, typed methods) are
//! written in Python on top of it. The GIL is released while waiting, and no thread of Dunlin's ever takes it: requests
//! for handlers in Python, and answers for asyncio, are put into queues that threads of Python empty.
//!
//! A payload is borrowed without a copy by operations that hold the GIL, and if it is `bytes`, which is immutable, also
//! by those that wait without it (`payload.rs`, which has the only unsafe code).
#![deny(unsafe_code)]

mod client;
mod completions;
mod errors;
mod inbox;
mod options;
mod payload;
mod pipeline;
mod region;
mod server;
mod waiting;

/// The contents of `dunlin._dunlin`. It is private to the package, which `python/dunlin/__init__.pyi` describes.
#[pyo3::pymodule]
mod _dunlin {
    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::completions::Completions;
    #[pymodule_export]
    use crate::inbox::{Inbox, Request};
    #[pymodule_export]
    use crate::pipeline::Pipeline;
    #[pymodule_export]
    use crate::region::Region;
    #[pymodule_export]
    use crate::server::Server;

    #[pymodule_init]
    fn init(_module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        dunlin_log::start_once();
        Ok(())
    }
}
