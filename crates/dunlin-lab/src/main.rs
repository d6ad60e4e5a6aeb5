//! The lab's command: `dunlin-lab list|run|score|fit|speed|hunt`.

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.split_first() {
        Some((&"list", _)) => command::list(),
        Some((&"run", rest)) => command::run(rest),
        Some((&"score", rest)) => command::score(rest),
        Some((&"fit", rest)) => command::fit(rest),
        Some((&"speed", _)) => command::speed(),
        Some((&"hunt", rest)) => command::hunt(rest),
        _ => {
            eprint!("{}", command::USAGE);
            ExitCode::from(2)
        }
    }
}
