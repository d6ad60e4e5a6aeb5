//! One update on a terminal.

use std::collections::VecDeque;

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};
use ratatui::Frame;

use super::{uptime, ClientView, DeviceView, SenderView, View};
use crate::output::{bytes, rate};

/// Columns of the devices.
pub const DEVICE_HEADER: [&str; 8] = [
    "device",
    "connections",
    "rate",
    "requests",
    "closed",
    "violations",
    "dropped",
    "sent again",
];
/// Columns of the senders.
pub const SENDER_HEADER: [&str; 5] = ["sender", "active lanes", "credits", "degree", "state"];

/// A row of the devices.
pub fn device_cells(device: &DeviceView) -> [String; 8] {
    // An unauthenticated client may have reported any numbers.
    let sum = |again: bool| {
        let these = (device.packets.iter()).filter(|(name, _)| (name == "retransmission") == again);
        these.fold(0, |sum: u64, (_, count)| sum.saturating_add(*count))
    };
    [
        device.name.clone(),
        device.connections.to_string(),
        rate(device.requests_per_s),
        device.requests.to_string(),
        device.closed.to_string(),
        device.violations.to_string(),
        sum(false).to_string(),
        sum(true).to_string(),
    ]
}

/// Why packets were dropped, by device, where any were.
pub fn drops(view: &View) -> Option<String> {
    let of = |device: &DeviceView| {
        let reasons: Vec<String> = (device.packets.iter())
            .filter(|(name, count)| *count > 0 && name != "retransmission")
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        (!reasons.is_empty()).then(|| format!("{}: {}", device.name, reasons.join(", ")))
    };
    let all: Vec<String> = view.devices.iter().filter_map(of).collect();
    (!all.is_empty()).then(|| format!("dropped by {}", all.join("; ")))
}

/// A row of the senders.
pub fn sender_cells(sender: &SenderView) -> [String; 5] {
    let state = if sender.dormant { "dormant" } else { "sends" };
    [
        sender.sender.clone(),
        format!("{} of {}", sender.active_lanes, sender.lanes),
        sender.credits.to_string(),
        sender.coalescing_degree.to_string(),
        state.to_owned(),
    ]
}

/// Columns of the clients.
pub const CLIENT_HEADER: [&str; 5] = [
    "client",
    "preset",
    "threads by lane",
    "migrations",
    "degree",
];

/// A row of the clients.
pub fn client_cells(client: &ClientView) -> [String; 5] {
    let threads = client.threads_of_lanes.iter().map(usize::to_string);
    [
        client.name.clone(),
        client.preset.clone(),
        threads.collect::<Vec<_>>().join(" "),
        client.migrations.to_string(),
        format!("{:.2}", client.coalescing_degree),
    ]
}

/// The parts of the screen other than the view.
#[derive(Debug, Default)]
pub struct Screen {
    /// First sender shown.
    pub scrolled: usize,
    /// Why the view is old.
    pub trouble: Option<String>,
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, view: &View, rates: &VecDeque<u64>, screen: &Screen) {
    let devices = view.devices.len().min(64) as u16 + 3;
    let clients = match view.clients.len() {
        0 => 0,
        count => (count.min(8) + 3) as u16,
    };
    let [head, curve, middle, below, last, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(6),
        Constraint::Length(devices),
        Constraint::Min(3),
        Constraint::Length(clients),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(summary(view)), head);
    draw_rates(frame, curve, view, rates);
    let cells = view
        .devices
        .iter()
        .map(|device| Row::new(device_cells(device)));
    let widths = [14, 12, 12, 14, 10, 10, 10, 10].map(Constraint::Length);
    let title = match drops(view) {
        None => "devices".to_owned(),
        Some(drops) => format!("devices; {drops}"),
    };
    frame.render_widget(grid(cells, widths, DEVICE_HEADER, title), middle);
    draw_senders(frame, below, view, screen.scrolled);
    let cells = view
        .clients
        .iter()
        .map(|client| Row::new(client_cells(client)));
    let title = format!("clients that report: {}", view.clients.len());
    let widths = [20, 22, 24, 10, 8].map(Constraint::Length);
    frame.render_widget(grid(cells, widths, CLIENT_HEADER, title), last);
    let keys = "q quits   up, down, page up, page down, home: senders";
    draw_foot(frame, foot, keys, screen);
}

/// Draws what there is before the first view: whom it waits for, and why.
pub fn draw_waiting(frame: &mut Frame<'_>, address: &str, screen: &Screen) {
    let [head, _, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let words = format!("waiting for {address}");
    let line = Line::from(words).style(Style::new().bold());
    frame.render_widget(Paragraph::new(line), head);
    draw_foot(frame, foot, "q quits", screen);
}

/// The last line: what keys do, or what is wrong.
fn draw_foot(frame: &mut Frame<'_>, area: Rect, keys: &'static str, screen: &Screen) {
    let line = match &screen.trouble {
        None => Line::from(keys).style(Style::new().add_modifier(Modifier::DIM)),
        Some(trouble) => Line::from(trouble.as_str()).style(Style::new().red()),
    };
    frame.render_widget(Paragraph::new(line), area);
}

fn summary(view: &View) -> Vec<Line<'static>> {
    let handshakes: Vec<String> = view
        .handshakes
        .iter()
        .filter(|(name, _)| !matches!(*name, "accepted" | "opened"))
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    let refused = if handshakes.is_empty() {
        "no handshake refused".to_owned()
    } else {
        format!("handshakes: {}", handshakes.join(", "))
    };
    vec![
        Line::from(format!(
            "{}   up {}   memory {}",
            view.address,
            uptime(view.uptime_s),
            bytes(view.resident_bytes as f64)
        ))
        .style(Style::new().bold()),
        Line::from(format!(
            "connections {} of {}   active queue pairs {} of {}   {refused}",
            view.connections,
            view.max_connections,
            view.active_queue_pairs,
            view.max_active_queue_pairs,
        )),
    ]
}

fn draw_rates(frame: &mut Frame<'_>, area: Rect, view: &View, rates: &VecDeque<u64>) {
    let most = rates.iter().copied().max().unwrap_or(0);
    let block = Block::bordered().title(format!(
        "requests {}   (most {})",
        rate(view.requests_per_s),
        rate(most as f64)
    ));
    let room = usize::from(block.inner(area).width);
    let newest: Vec<u64> = rates.iter().rev().take(room).rev().copied().collect();
    let curve = Sparkline::default().block(block).data(newest);
    frame.render_widget(curve.max(most.max(1)), area);
}

fn draw_senders(frame: &mut Frame<'_>, area: Rect, view: &View, scrolled: usize) {
    let first = scrolled.min(view.senders.len().saturating_sub(1));
    let title = match view.senders.len() {
        0 => "senders: none (clients of preset flock appear here)".to_owned(),
        count => format!("senders {} to {count}", first + 1),
    };
    let shown = view.senders.iter().skip(first);
    let rows = shown.map(|sender| Row::new(sender_cells(sender)));
    let widths = [18, 14, 10, 8, 10].map(Constraint::Length);
    frame.render_widget(grid(rows, widths, SENDER_HEADER, title), area);
}

fn grid<'a, const N: usize>(
    rows: impl Iterator<Item = Row<'a>>,
    widths: [Constraint; N],
    header: [&'static str; N],
    title: String,
) -> Table<'a> {
    Table::new(rows, widths)
        .header(Row::new(header).style(Style::new().add_modifier(Modifier::DIM)))
        .block(Block::bordered().title(title))
}

#[cfg(test)]
mod tests {
    use super::super::tests::figures;
    use super::super::History;
    use super::*;
    use ratatui::backend::TestBackend;
    use ratatui::Terminal;

    fn screen(width: u16, height: u16, trouble: Option<&str>) -> String {
        let mut history = History::new("dunlin://db1:7400".into());
        history.look(figures(10, 1000));
        let mut view = history.look(figures(11, 2_001_000)).unwrap();
        view.senders = (0..40)
            .map(|i| SenderView {
                sender: format!("{i:016x}"),
                active_lanes: 1,
                lanes: 4,
                credits: 32,
                coalescing_degree: i,
                dormant: i == 0,
            })
            .collect();
        view.clients = vec![ClientView {
            name: "web".into(),
            preset: "flock".into(),
            threads_of_lanes: vec![3, 5],
            migrations: 12,
            coalescing_degree: 1.5,
        }];
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let screen = Screen {
            scrolled: 3,
            trouble: trouble.map(str::to_owned),
        };
        let drawn = terminal.draw(|frame| draw(frame, &view, &history.rates, &screen));
        drawn.unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_screen_shows_the_load_and_the_senders() {
        let text = screen(90, 30, None);
        for words in [
            "dunlin://db1:7400   up 0:00:11",
            "requests 2.00 M/s",
            "senders 4 to 40",
            "0000000000000003",
            "1 of 4",
            "clients that report: 1",
            "3 5",
            "q quits",
        ] {
            assert!(text.contains(words), "no '{words}' in\n{text}");
        }
        assert!(!text.contains("0000000000000002"), "{text}");
    }

    #[test]
    fn trouble_is_shown_and_a_tiny_screen_is_no_error() {
        let text = screen(90, 30, Some("no answer: connection lost"));
        assert!(text.contains("no answer: connection lost"), "{text}");
        screen(3, 2, None);
    }
}
