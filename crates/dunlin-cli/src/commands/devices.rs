//! `dunlin devices`: lists devices and their capabilities.

use std::collections::BTreeMap;

use dunlin_ibv::{IbvConfig, IbvDevice};
use dunlin_verbs::{DeviceAttributes, Placement, Transport, Verbs};
use serde::Serialize;

use super::Failure;
use crate::output;

/// List devices and their capabilities
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dunlin devices\n  dunlin devices --json | jq '.devices[].name'"
)]
pub struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Listing {
    devices: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    usable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<Attributes>,
    /// What was chosen and why, if there was a choice.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    choices: BTreeMap<&'static str, String>,
}

#[derive(Debug, Serialize)]
struct Attributes {
    rc: Vec<String>,
    uc: Vec<String>,
    ud: Vec<String>,
    placement: &'static str,
    pages: String,
    mtu_bytes: usize,
    max_message_bytes: usize,
    max_inline_bytes: usize,
    max_queue_pairs: usize,
    max_send_requests: usize,
    max_receive_requests: usize,
    max_shared_receive_requests: usize,
    max_segments: usize,
    max_regions: usize,
    max_registered_bytes: usize,
    timestamps: bool,
}

impl From<&DeviceAttributes> for Attributes {
    fn from(a: &DeviceAttributes) -> Self {
        let verbs = |transport| names(a.transports.verbs(transport));
        Self {
            rc: verbs(Transport::ReliableConnection),
            uc: verbs(Transport::UnreliableConnection),
            ud: verbs(Transport::UnreliableDatagram),
            placement: match a.placement {
                Placement::InOrder => "in order of addresses",
                Placement::Unordered => "in any order",
            },
            pages: a.page_kind.to_string(),
            mtu_bytes: a.mtu_bytes,
            max_message_bytes: a.max_message_bytes,
            max_inline_bytes: a.max_inline_bytes,
            max_queue_pairs: a.max_queue_pairs,
            max_send_requests: a.max_send_requests,
            max_receive_requests: a.max_receive_requests,
            max_shared_receive_requests: a.max_shared_receive_requests,
            max_segments: a.max_segments,
            max_regions: a.max_regions,
            max_registered_bytes: a.max_registered_bytes,
            timestamps: a.timestamps,
        }
    }
}

fn names(verbs: Verbs) -> Vec<String> {
    verbs
        .iter_names()
        .map(|(name, _)| name.to_lowercase().replace('_', " "))
        .collect()
}

/// Which port and address were chosen on a NIC, and why.
fn choices(name: &str) -> BTreeMap<&'static str, String> {
    let Some((_, nic)) = name.split_once(':').filter(|(kind, _)| *kind == "ibv") else {
        return BTreeMap::new();
    };
    let open = IbvConfig::from_environment().and_then(|mut config| {
        config.device = Some(nic.to_owned());
        IbvDevice::open(config)
    });
    open.map(|device| device.choices().into_iter().collect())
        .unwrap_or_default()
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let devices: Vec<Entry> = dunlin::available()
        .into_iter()
        .map(|report| match report.attributes {
            Ok(attributes) => Entry {
                choices: choices(&report.name),
                name: report.name,
                usable: true,
                missing: None,
                attributes: Some((&attributes).into()),
            },
            Err(error) => Entry {
                name: report.name,
                usable: false,
                missing: Some(error.to_string()),
                attributes: None,
                choices: BTreeMap::new(),
            },
        })
        .collect();
    if args.json {
        output::print_json(&Listing { devices })?;
        return Ok(());
    }
    let mut text = String::new();
    for device in &devices {
        match (&device.attributes, &device.missing) {
            (Some(a), _) => {
                text.push_str(&format!("{}\n", device.name));
                for (name, verbs) in [("RC", &a.rc), ("UC", &a.uc), ("UD", &a.ud)] {
                    text.push_str(&format!("  {name:<22}{}\n", verbs.join(", ")));
                }
                for (name, choice) in &device.choices {
                    text.push_str(&format!("  {name:<22}{choice}\n"));
                }
                text.push_str(&format!("  {:<22}{}\n", "WRITEs are placed", a.placement));
                text.push_str(&format!("  {:<22}{}\n", "pages", a.pages));
                for (name, value) in [
                    ("MTU bytes", a.mtu_bytes),
                    ("message bytes", a.max_message_bytes),
                    ("inline bytes", a.max_inline_bytes),
                    ("queue pairs", a.max_queue_pairs),
                    ("send requests", a.max_send_requests),
                    ("receive requests", a.max_receive_requests),
                    ("segments", a.max_segments),
                    ("regions", a.max_regions),
                    ("registered bytes", a.max_registered_bytes),
                ] {
                    text.push_str(&format!("  {name:<22}at most {value}\n"));
                }
            }
            (None, missing) => {
                let why = missing.as_deref().unwrap_or("unknown");
                text.push_str(&format!("{}: not usable here: {why}\n", device.name));
            }
        }
    }
    output::print(text.trim_end())?;
    Ok(())
}
