//! What the examples share: services, as `dunlin-build` makes them of the files in `proto/`, and how a program serves.
//! Each program is in `src/bin`, and in a chapter of the book (`docs/book`).
#![forbid(unsafe_code)]

/// `proto/helloworld.proto`.
#[allow(missing_docs)]
pub mod helloworld {
    dunlin_service::include_proto!("helloworld");
}

/// `proto/routeguide.proto`.
#[allow(missing_docs)]
pub mod routeguide {
    dunlin_service::include_proto!("routeguide");
}

/// `proto/echo.proto`.
#[allow(missing_docs)]
pub mod echo {
    dunlin_service::include_proto!("echo");
}

/// `proto/interop.proto`.
#[allow(missing_docs)]
pub mod interop {
    dunlin_service::include_proto!("interop");
}

/// What ends an example.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Says where a server is, for whoever started it, and serves until it is told to end.
///
/// # Errors
/// When it cannot be started.
pub async fn serve(server: dunlin_service::Server, address: &str) -> Result<(), Failure> {
    let running = server.start(address)?;
    println!("listening on {}", running.address());
    tokio::task::spawn_blocking(until_told_to_end).await??;
    tokio::task::spawn_blocking(move || running.shutdown()).await?;
    Ok(())
}

/// Waits for Ctrl-C, or for what `kill` and service managers say (SIGTERM): how a server is told to end.
///
/// # Errors
/// When the program listens for signals already.
pub fn until_told_to_end() -> Result<(), Failure> {
    let (told, end) = std::sync::mpsc::channel();
    ctrlc::set_handler(move || {
        let _ = told.send(());
    })?;
    Ok(end.recv()?)
}
