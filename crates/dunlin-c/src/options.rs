//! Settings of clients and servers, as structs to which later versions can add fields.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_void};
use std::time::Duration;

use dunlin::{ChannelConfig, Client, ClientBuilder, Preset, Secret, ServerBuilder, WaitMode};

use crate::error::{Code, Error};
use crate::given::{self, Versioned};

/// Settings of a client. Zero the whole struct and set `struct_size`, then the settings that are not to be the default:
///
///     dunlin_client_options options = {.struct_size = sizeof options, .deadline_us = 500000};
///
/// Later versions add fields at the end, for which zero is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// sizeof(dunlin_client_options), which tells what fields there are.
    pub struct_size: usize,
    /// The preset to use, such as "flock"; NULL: "auto".
    pub preset: *const c_char,
    /// The only device to use, such as "shm"; NULL: the best that both sides have.
    pub device: *const c_char,
    /// The secret that both sides prove to know, from 1 to 1024 bytes; NULL: none.
    pub secret: *const c_void,
    /// Number of bytes of the secret.
    pub secret_length: usize,
    /// Maximum duration of a call; 0: ten seconds.
    pub deadline_us: u64,
    /// Maximum time for making a connection; 0: five seconds.
    pub connect_timeout_us: u64,
    /// The longest accepted answer, in bytes; 0: 16 MiB.
    pub max_message_bytes: usize,
    /// Maximum number of outstanding calls: for each thread, for all asynchronous calls, for a pipeline; 0: 1024.
    pub max_outstanding: usize,
    /// How long a waiting thread polls before it sleeps; 0: 50 microseconds, UINT64_MAX: it never sleeps.
    pub spin_us: u64,
}

/// Settings of a server; see dunlin_client_options for how to fill it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ServerOptions {
    /// sizeof(dunlin_server_options), which tells what fields there are.
    pub struct_size: usize,
    /// The only device to serve; NULL: all that this host has.
    pub device: *const c_char,
    /// The secret that clients must prove to know, from 1 to 1024 bytes; NULL: none.
    pub secret: *const c_void,
    /// Number of bytes of the secret.
    pub secret_length: usize,
    /// Number of threads that poll connections, for each device; 0: one.
    pub pollers: usize,
    /// Number of threads for handlers on workers; 0: four.
    pub workers: usize,
    /// Maximum number of connections on each device; 0: 4096.
    pub max_connections: usize,
    /// The longest accepted request, in bytes; 0: 16 MiB.
    pub max_message_bytes: usize,
    /// How long a polling thread polls before it sleeps; 0: 50 microseconds, UINT64_MAX: it never sleeps.
    pub spin_us: u64,
}

/// Otherwise there would be padding between the fields of the options.
const _: () = assert!(
    size_of::<usize>() == 8,
    "libdunlin requires a 64-bit machine"
);

// SAFETY: `repr(C)`; words of eight bytes, so that there is no padding, of which the first is a `usize`; any bytes are
// a value of each.
unsafe impl Versioned for ClientOptions {}
// SAFETY: as above.
unsafe impl Versioned for ServerOptions {}

/// The caller's deadline, or the default if it is 0.
pub(crate) fn deadline(micros: u64, default: Duration) -> Duration {
    match micros {
        0 => default,
        micros => Duration::from_micros(micros),
    }
}

/// Reads a client's settings; also returns the deadline and the limit of outstanding calls.
///
/// # Safety
/// `options` is NULL or as its type says.
pub(crate) unsafe fn client(
    options: *const ClientOptions,
) -> Result<(ClientBuilder, Duration, usize), Error> {
    // SAFETY: as this function's.
    let options = unsafe { given::options(options, "options") }?;
    // The builder has the same default.
    let default = Duration::from_secs(10);
    let within = deadline(options.deadline_us, default);
    let mut channel = ChannelConfig::default();
    common(&mut channel, options.max_message_bytes, options.spin_us);
    if options.max_outstanding != 0 {
        channel.max_outstanding = options.max_outstanding;
    }
    let most = channel.max_outstanding;
    let mut builder = Client::builder().channel(channel).deadline(within);
    if options.connect_timeout_us != 0 {
        builder = builder.connect_timeout(Duration::from_micros(options.connect_timeout_us));
    }
    // SAFETY: text or NULL, as the struct says.
    if let Some(name) = unsafe { given::optional_text(options.preset, "options->preset") }? {
        let preset: Preset = name.parse().map_err(|error| {
            Error::new(Code::InvalidArgument, format!("options->preset: {error}"))
        })?;
        builder = builder.preset(preset);
    }
    // SAFETY: as above.
    if let Some(device) = unsafe { given::optional_text(options.device, "options->device") }? {
        builder = builder.device(device);
    }
    // SAFETY: as the struct says.
    if let Some(secret) = unsafe { secret(options.secret, options.secret_length) }? {
        builder = builder.secret(secret);
    }
    Ok((builder, within, most))
}

/// Applies settings to a server's builder.
///
/// # Safety
/// `options` is NULL or as its type says.
pub(crate) unsafe fn server(
    options: *const ServerOptions,
    mut builder: ServerBuilder,
) -> Result<ServerBuilder, Error> {
    // SAFETY: as this function's.
    let options = unsafe { given::options(options, "options") }?;
    let mut channel = ChannelConfig::default();
    common(&mut channel, options.max_message_bytes, options.spin_us);
    builder = builder.channel(channel);
    // SAFETY: text or NULL, as the struct says.
    if let Some(device) = unsafe { given::optional_text(options.device, "options->device") }? {
        builder = builder.device(device);
    }
    // SAFETY: as the struct says.
    if let Some(secret) = unsafe { secret(options.secret, options.secret_length) }? {
        builder = builder.secret(secret);
    }
    if options.pollers != 0 {
        builder = builder.pollers(options.pollers);
    }
    if options.workers != 0 {
        builder = builder.workers(options.workers);
    }
    if options.max_connections != 0 {
        builder = builder.max_connections(options.max_connections);
    }
    Ok(builder)
}

fn common(channel: &mut ChannelConfig, max_message_bytes: usize, spin_us: u64) {
    if max_message_bytes != 0 {
        channel.max_message_bytes = max_message_bytes;
    }
    match spin_us {
        0 => {}
        u64::MAX => channel.wait = WaitMode::Spin,
        micros => {
            channel.wait = WaitMode::Doze {
                spin: Duration::from_micros(micros),
            }
        }
    }
}

/// # Safety
/// `data` is NULL or points to so many bytes.
unsafe fn secret(data: *const c_void, length: usize) -> Result<Option<Secret>, Error> {
    if data.is_null() && length == 0 {
        return Ok(None);
    }
    // SAFETY: as this function's.
    let bytes = unsafe { given::bytes(data, length, "options->secret") }?;
    let secret = Secret::new(bytes)
        .map_err(|error| Error::new(Code::InvalidArgument, format!("options->secret: {error}")))?;
    Ok(Some(secret))
}
