//! One update as tables, for output other than a terminal.

use std::fmt::Write;

use super::draw::{
    client_cells, device_cells, drops, sender_cells, CLIENT_HEADER, DEVICE_HEADER, SENDER_HEADER,
};
use super::{uptime, View};
use crate::output::{bytes, rate, table};

/// The summary and a table each for devices and senders.
pub fn text(view: &View) -> String {
    let mut text = format!(
        "{}  up {}  {}  {} of {} connections  {} of {} queue pairs active  {}\n",
        view.address,
        uptime(view.uptime_s),
        rate(view.requests_per_s),
        view.connections,
        view.max_connections,
        view.active_queue_pairs,
        view.max_active_queue_pairs,
        bytes(view.resident_bytes as f64),
    );
    let mut devices = table(&DEVICE_HEADER);
    for device in &view.devices {
        devices.add_row(device_cells(device));
    }
    // Writing to a string does not fail.
    let _ = writeln!(text, "{devices}");
    if let Some(drops) = drops(view) {
        let _ = writeln!(text, "{drops}");
    }
    if !view.senders.is_empty() {
        let mut senders = table(&SENDER_HEADER);
        for sender in &view.senders {
            senders.add_row(sender_cells(sender));
        }
        let _ = writeln!(text, "{senders}");
    }
    if !view.clients.is_empty() {
        let mut clients = table(&CLIENT_HEADER);
        for client in &view.clients {
            clients.add_row(client_cells(client));
        }
        let _ = writeln!(text, "{clients}");
    }
    text
}
