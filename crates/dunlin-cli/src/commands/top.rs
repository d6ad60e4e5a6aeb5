//! `dunlin top`: a live view of a running server.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use dunlin::{Address, CallError, Client};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use super::{connect, perf, Failure};
use crate::top::{draw, plain, History, View};
use crate::{interrupt, output};

/// Watch a running server
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Shows requests per second, connections, and the queue-pair scheduler: each client's active lanes, credits and \
coalescing degree, and for clients that report (`--report`, `ClientBuilder::reports_figures`) which lanes their \
threads use. It asks the server itself, over its own protocol; a server built with `shows_figures(false)` does not \
answer. If the output is not a terminal, it prints tables.\n\n\
Examples:\n  \
  dunlin top 127.0.0.1:7400\n  \
  dunlin top db1:7400 --interval 0.2\n  \
  dunlin top db1:7400 --count 1 --json | jq .requests_per_s")]
pub struct Args {
    /// Address of the server
    address: Address,
    /// Seconds between updates
    #[arg(long, default_value = "1", value_parser = perf::parse_seconds, value_name = "SECONDS", allow_negative_numbers = true)]
    interval: Duration,
    /// Number of updates after which to end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print one JSON object for each update
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: connect::Options,
}

/// Interval of the checks for a signal.
const LOOK: Duration = Duration::from_millis(100);

/// Watches.
pub fn run(args: &Args) -> Result<(), Failure> {
    let client = args.connect.connect(&args.address)?;
    let mut history = History::new(args.address.to_string());
    history.look(client.server_figures().map_err(explain)?);
    if args.json || !std::io::stdout().is_terminal() {
        return print(args, &client, &mut history);
    }
    // A signal ends it as a key does: the terminal is put back.
    interrupt::listen()?;
    let mut terminal = ratatui::try_init()?;
    let watched = watch(args, &client, &mut history, &mut terminal);
    ratatui::try_restore()?;
    watched
}

fn explain(error: CallError) -> Failure {
    let unknown = matches!(error, CallError::UnknownHandler(_));
    let failure = Failure::new(error);
    if unknown {
        return failure
            .help("the server does not show its figures: see ServerBuilder::shows_figures");
    }
    failure
}

/// Updates left.
fn updates(args: &Args) -> impl Iterator<Item = u64> {
    0..args.count.unwrap_or(u64::MAX)
}

fn print(args: &Args, client: &Client, history: &mut History) -> Result<(), Failure> {
    for _ in updates(args) {
        std::thread::sleep(args.interval);
        let Some(view) = history.look(client.server_figures().map_err(explain)?) else {
            continue;
        };
        if args.json {
            output::print_json(&view)?;
        } else {
            output::print(plain::text(&view))?;
        }
    }
    Ok(())
}

fn watch(
    args: &Args,
    client: &Client,
    history: &mut History,
    terminal: &mut ratatui::DefaultTerminal,
) -> Result<(), Failure> {
    let mut screen = draw::Screen::default();
    let mut shown: Option<View> = None;
    for _ in updates(args) {
        let next = Instant::now() + args.interval;
        loop {
            terminal.draw(|frame| match &shown {
                Some(view) => draw::draw(frame, view, &history.rates, &screen),
                None => draw::draw_waiting(frame, &args.address.to_string(), &screen),
            })?;
            // Between two looks for a signal nothing is drawn.
            let is_pressed = loop {
                let left = next.saturating_duration_since(Instant::now());
                if interrupt::came() {
                    return Ok(());
                }
                if left.is_zero() {
                    break false;
                }
                if event::poll(left.min(LOOK))? {
                    break true;
                }
            };
            if !is_pressed {
                break;
            }
            if !pressed(&event::read()?, &mut screen) {
                return Ok(());
            }
        }
        match client.server_figures() {
            Ok(figures) => {
                screen.trouble = None;
                shown = history.look(figures).or(shown);
            }
            // The client connects again by itself when the server is back.
            Err(error) => screen.trouble = Some(format!("no response: {error}")),
        }
    }
    Ok(())
}

/// Handles a key; `false` to quit.
fn pressed(event: &Event, screen: &mut draw::Screen) -> bool {
    let Event::Key(key) = event else {
        return true;
    };
    if key.kind == KeyEventKind::Release {
        return true;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if control => return false,
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Up => screen.scrolled = screen.scrolled.saturating_sub(1),
        KeyCode::Down => screen.scrolled += 1,
        KeyCode::PageUp => screen.scrolled = screen.scrolled.saturating_sub(20),
        KeyCode::PageDown => screen.scrolled += 20,
        KeyCode::Home => screen.scrolled = 0,
        _ => {}
    }
    true
}
