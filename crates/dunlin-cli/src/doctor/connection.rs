//! The devices of this host, and which of them a connection to an address would use.

use std::time::Duration;

use dunlin::{CallError, Client, Preset, FIGURES};
use dunlin_bootstrap::{dial, Address, BootstrapError, DialConfig};

use super::Finding;

const DEVICES: &str = "devices";
const CONNECTION: &str = "connection";
const OTHER: &str = "other device";
/// Time limit for datagrams: longer than all repetitions of one.
const PATIENCE: Duration = Duration::from_secs(3);

/// The devices that Dunlin knows.
pub fn devices() -> Vec<Finding> {
    dunlin::available()
        .into_iter()
        .map(|device| match device.attributes {
            Ok(attributes) => {
                let chosen = dunlin_rpc::chosen(&device.name, None);
                let chosen = chosen.map_or(String::new(), |on| format!(", {on}"));
                let pages = attributes.page_kind;
                Finding::ok(DEVICES, format!("{} ({pages} pages{chosen})", device.name))
            }
            Err(error) => Finding::missing(
                DEVICES,
                format!("{}: {error}", device.name),
                "the other devices work without it; `dunlin devices` shows them",
            ),
        })
        .collect()
}

/// What a client of `address` with these settings would use, and why not the other devices of this host; asks
/// the server and opens nothing, but for the one call that shows whether datagrams come through.
pub fn connection(address: &Address, mut config: DialConfig) -> Vec<Finding> {
    config.capabilities = match dunlin_rpc::capabilities_towards(Some(address)) {
        Ok((capabilities, _)) => capabilities,
        Err(error) => {
            let found = format!("cannot determine the identity of this host: {error}");
            return vec![Finding::missing(CONNECTION, found, "mount /proc")];
        }
    };
    let (chosen, finding) = match dial(address, &config) {
        Ok(dialed) => {
            let device = dialed.device().to_owned();
            let peer = dialed.peer().address();
            let peer = peer.map(|address| address.ip().to_canonical());
            let on =
                dunlin_rpc::chosen(&device, peer).map_or(String::new(), |on| format!("; {on}"));
            let why = dialed.why();
            let way = format!("{address} over {device} ({why}{on})");
            drop(dialed);
            let finding = match device.as_str() {
                "roce" => datagrams(address, &way, &device, &config),
                _ => Finding::ok(CONNECTION, way),
            };
            (device, finding)
        }
        Err(error @ BootstrapError::NoCommonDevice { .. }) => {
            let finding = Finding::missing(CONNECTION, error.to_string(), advice(&error));
            (String::new(), finding)
        }
        // Who cannot be asked cannot be asked about others either.
        Err(error) => {
            let finding = Finding::missing(CONNECTION, error.to_string(), advice(&error));
            return vec![finding];
        }
    };
    let mut findings = vec![finding];
    let others = dunlin::available();
    for other in others.into_iter().filter(|other| other.name != chosen) {
        let why = match &other.attributes {
            Err(error) => format!("not usable on this host: {error}"),
            Ok(_) => {
                config.device = Some(other.name.clone());
                unchosen(address, &config)
            }
        };
        findings.push(Finding::ok(OTHER, format!("{}: {why}", other.name)));
    }
    findings
}

/// Why the device that `config` asks for is not the one that is taken without being asked for.
fn unchosen(address: &Address, config: &DialConfig) -> String {
    match dial(address, config) {
        Ok(_) => {
            "reaches the server as well, but another device is preferred unless --device selects this one".to_owned()
        }
        Err(BootstrapError::NoCommonDevice { source, .. }) => source.reason(),
        Err(error) => error.to_string(),
    }
}

/// Whether datagrams arrive: a firewall that lets TCP pass may drop them.
fn datagrams(address: &Address, way: &str, device: &str, config: &DialConfig) -> Finding {
    let mut builder = Client::builder()
        .preset(Preset::Plain)
        .device(device)
        .connect_timeout(config.timeout);
    if let Some(secret) = &config.secret {
        builder = builder.secret(secret.clone());
    }
    if let Some(tls) = &config.tls {
        builder = builder.tls(tls.clone());
    }
    let called = builder
        .connect(&address.to_string())
        .map_err(|error| error.to_string())
        // An answer of any kind has come by datagrams.
        .and_then(|client| match client.call_within(PATIENCE, FIGURES, b"") {
            Err(
                error @ (CallError::ConnectionLost { .. } | CallError::DeadlineExceeded { .. }),
            ) => Err(error.to_string()),
            _ => Ok(()),
        });
    match called {
        Ok(()) => Finding::ok(CONNECTION, format!("{way}; datagrams arrive")),
        Err(error) => Finding::missing(
            CONNECTION,
            format!("{way}, but datagrams do not arrive: {error}"),
            "a firewall may drop UDP: allow it between the two hosts, in both directions, on ports above 1023; or set \
             the port of each side with DUNLIN_ROCE_PORT and allow that",
        ),
    }
}

fn advice(error: &BootstrapError) -> &'static str {
    match error {
        BootstrapError::UnknownHost { .. } => "check the name, or use the host's IP address",
        BootstrapError::ConnectionRefused { .. } => {
            "start a server there, such as `dunlin serve echo --listen ADDRESS`"
        }
        BootstrapError::Timeout { .. } => "check that the host is running and that no firewall is in between",
        BootstrapError::WrongSecret { .. } | BootstrapError::SecretRequired { .. } => {
            "pass the server's secret with --secret-file"
        }
        BootstrapError::SecretUnexpected { .. } => "omit --secret-file",
        BootstrapError::NoCommonDevice { .. } => {
            "`dunlin devices` on both hosts shows the devices of each side"
        }
        BootstrapError::TlsRequired { .. } => {
            "pass the authority of the server's certificate with --tls-ca"
        }
        BootstrapError::TlsUnexpected { .. } => {
            "omit --tls-ca, or give the server a certificate with --tls-cert and --tls-key"
        }
        BootstrapError::ServerCertificate { .. } => {
            "inspect the server's certificate with `openssl x509 -text -in FILE`; --tls-name checks for another name"
        }
        BootstrapError::ClientCertificate { .. } => {
            "use a certificate from the authority that the server requires, with --tls-cert and --tls-key"
        }
        BootstrapError::NotDunlin { .. } => "check the port",
        BootstrapError::Version { .. } => "install the same release on both sides",
        _ => "check whether the server is still running, and see its log",
    }
}
