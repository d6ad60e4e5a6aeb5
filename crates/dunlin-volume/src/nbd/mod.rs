//! The export of a volume by NBD, the protocol of network block devices: fixed newstyle handshake, simple replies, and
//! the commands READ, WRITE, FLUSH, TRIM and WRITE_ZEROES.
//!
//! `session` is the server's side of one client's protocol, over bytes; `export` has the sockets and the volume, on one
//! thread, which also polls the volume's lanes. Every write is as durable as it will be when it is answered, so FLUSH
//! has nothing to do, FUA is always satisfied, and several connections see one disk.

mod address;
mod export;
mod session;
mod wire;

pub use address::{NbdAddress, NbdAddressError};
pub use export::{Export, ExportError};
