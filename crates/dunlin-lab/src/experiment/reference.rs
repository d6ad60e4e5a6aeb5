//! The tables of `docs/experiments.md`, generated from the list of keys: `dunlin lab keys` prints them, and a test
//! compares them with the page.

use std::fmt::Write;

use super::column::{Of, COLUMNS};
use super::keys::SECTIONS;
use super::schema::{Need, Section};

/// All keys and columns, as tables in Markdown.
pub fn reference() -> String {
    let mut text = String::new();
    for section in SECTIONS {
        let _ = writeln!(text, "{}", keys(section));
    }
    text + &columns()
}

/// A section with its heading.
pub(super) fn keys(section: &Section) -> String {
    let heading = match (section.name, section.many) {
        ("", _) => "### At the top".to_owned(),
        (name, true) => format!("### `[[{name}]]`"),
        (name, false) => format!("### `[{name}]`"),
    };
    let mut text = format!(
        "{heading}\n\n| key | what stands there | default | meaning |\n|---|---|---|---|\n"
    );
    for key in section.keys {
        let default = match key.need {
            Need::Must => "must be there".to_owned(),
            Need::Default(value) => format!("`{value}`"),
            Need::Or(words) => words.to_owned(),
        };
        let (name, kind, meaning) = (key.name, key.kind.words(), key.meaning);
        let _ = writeln!(text, "| `{name}` | {kind} | {default} | {meaning} |");
    }
    text
}

/// The table of columns.
pub(super) fn columns() -> String {
    let mut text = String::from(
        "### Columns\n\n| column | unit | of one group | meaning |\n|---|---|---|---|\n",
    );
    for column in COLUMNS {
        let group = match column.of {
            Of::Clients => "of clients",
            Of::Flows => "of flows",
            Of::Verbs => "of verbs",
            Of::Hosts => "of hosts",
            Of::Server | Of::Cluster => "",
        };
        let (name, unit, meaning) = (column.name, column.unit, column.meaning);
        let _ = writeln!(text, "| `{name}` | {unit} | {group} | {meaning} |");
    }
    text
}
