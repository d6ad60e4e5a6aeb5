//! The file system from a program, without a mount.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin files -- dunlin://127.0.0.1:7431    # `dunlin serve meta` there
//! ```

use dunlin_examples::Failure;
use dunlin_fs::{FileSystem, FsError};

fn main() -> Result<(), Failure> {
    let address = std::env::args().nth(1).ok_or("usage: files ADDRESS")?;
    // ANCHOR: use
    let system = FileSystem::connect(&address)?;
    system.create_directory("/birds")?;
    let file = system.create_new("/birds/dunlin")?;
    file.write_at(0, b"a small wader")?; // a WRITE into the data server's memory
    file.sync()?; // on its disk, and in the metadata server's journal
    println!("{}", String::from_utf8_lossy(&file.read_at(2, 5)?));
    println!("{:?}", system.list("/birds")?);
    let missing: Result<_, FsError> = system.open("/birds/knot");
    if let Err(error) = missing {
        println!("{error}");
    }
    // ANCHOR_END: use
    Ok(())
}
