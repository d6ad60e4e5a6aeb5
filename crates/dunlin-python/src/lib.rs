//! Dunlin for Python: `dunlin._dunlin`, the extension module below the package in `python/dunlin`.
//!
//! Here is what moves bytes and waits; classes with manners (context managers, asyncio, decorators, typed methods) are
//! in Python, over these. Python's lock is given up by whoever waits, and no thread of Dunlin's ever takes it: requests
//! for handlers in Python, and answers for asyncio, stand in queues that threads of Python empty.
//!
//! A payload is lent as it is to what is done with Python's lock held, and when it is `bytes`, which cannot change,
//! also to what waits without it (`payload.rs`, where the one piece of unsafe code is).
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

/// What `dunlin._dunlin` has. It is private to the package, which `python/dunlin/__init__.pyi` describes.
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
