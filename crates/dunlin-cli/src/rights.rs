//! The file of rights for `dunlin serve --rights`: TOML, a list of rules. Errors in it are reported with their line.
//!
//! ```toml
//! [[allow]]
//! who = "name:orders.example"                 # anyone, secret, certificate, name:NAME, user:NUMBER
//! call = [1, "/shop.Orders/Place", "/shop.Stock/*", "figures", "capture"]
//! read = ["table"]
//! write = ["table"]
//! atomic = ["counters"]
//! ```

use std::path::Path;

use dunlin::{Grant, HandlerId, Rights, Who, CAPTURE, FIGURES};
use serde::Deserialize;
use toml::Spanned;

use crate::commands::Failure;
use crate::input;

/// Longest file of rights.
const MOST_BYTES: usize = 1 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    allow: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    who: Spanned<String>,
    #[serde(default)]
    call: Vec<Spanned<Call>>,
    #[serde(default)]
    read: Vec<Spanned<String>>,
    #[serde(default)]
    write: Vec<Spanned<String>>,
    #[serde(default)]
    atomic: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a handler's number (0 to 65535) or its name"
)]
enum Call {
    Id(HandlerId),
    Name(String),
}

/// Reads a file of rights.
///
/// # Errors
/// When it cannot be read, or something in it makes no sense: with file, line and key, exit code 2.
pub fn read(file: &Path) -> Result<Rights, Failure> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("rights of {}: {error}", file.display()))
    };
    let bytes = std::fs::File::open(file)
        .and_then(|open| input::read_at_most(open, MOST_BYTES))
        .map_err(|error| wrong(&error))?
        .ok_or_else(|| wrong(&format_args!("larger than the limit of {MOST_BYTES} bytes")))?;
    let text = String::from_utf8(bytes).map_err(|error| wrong(&error))?;
    let place = |at: usize, key: &str| {
        let line = text.as_bytes()[..at.min(text.len())]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        format!("{}, line {}: {key}", file.display(), line + 1)
    };
    let parsed: File = toml::from_str(&text).map_err(|error| {
        let words = error.message();
        match error.span() {
            Some(span) => Failure::usage(format!("{} ({words})", place(span.start, "no rights"))),
            None => wrong(&words),
        }
    })?;
    let mut rights = Rights::new();
    for rule in parsed.allow {
        let at = place(rule.who.span().start, "who");
        let who: Who = (rule.who.get_ref().parse())
            .map_err(|error| Failure::usage(format!("{at}: {error}")))?;
        // Each is a rule of its own, which is named by its own line when the server has no such thing.
        let mut allow = |key: &str, at: usize, grant: Grant| {
            let grant = grant.written_at(place(at, key));
            rights = std::mem::take(&mut rights).allow(who.clone(), grant);
        };
        for call in rule.call {
            let at = call.span().start;
            let grant = match call.into_inner() {
                Call::Id(id) => Grant::new().call(id),
                Call::Name(name) if name == "figures" => Grant::new().call(FIGURES),
                Call::Name(name) if name == "capture" => Grant::new().call(CAPTURE),
                Call::Name(name) => Grant::new().call_named(name),
            };
            allow("call", at, grant);
        }
        type Right = fn(Grant, String) -> Grant;
        let regions: [(&str, Vec<Spanned<String>>, Right); 3] = [
            ("read", rule.read, Grant::read),
            ("write", rule.write, Grant::write),
            ("atomic", rule.atomic, Grant::atomic),
        ];
        for (key, names, right) in regions {
            for name in names {
                let at = name.span().start;
                allow(key, at, right(Grant::new(), name.into_inner()));
            }
        }
    }
    Ok(rights)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Rights, Failure> {
        let name = format!("dunlin-rights-{}-{:p}.toml", std::process::id(), text);
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        let read = read(&path);
        std::fs::remove_file(&path).unwrap();
        read
    }

    #[test]
    fn rules_are_read_with_their_places() {
        let rights =
            of("[[allow]]\nwho = 'secret'\ncall = [1,\n '/a.B/*', 'figures', 'capture']\nread = ['*']\n")
                .unwrap();
        let said = format!("{rights:?}");
        for words in [
            "line 3: call",
            "line 4: call",
            "line 5: read",
            "/a.B/*",
            "Id(65535)",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert_eq!(of("").unwrap(), Rights::new());
    }

    #[test]
    fn what_makes_no_sense_is_named_with_its_line_and_key() {
        for (text, line, words) in [
            (
                "[[allow]]\n\nwho = 'nobody'\n",
                3,
                "who: unknown client `nobody`",
            ),
            ("[[allow]]\nwho = 'anyone'\ncal = [1]\n", 3, "`cal`"),
            (
                "[[allow]]\nwho = 'anyone'\ncall = [70000]\n",
                3,
                "a handler's number",
            ),
            ("[[allow]]\ncall = [1]\n", 1, "`who`"),
            (
                "[[allow]]\nwho = 'user:x'\n",
                2,
                "who: unknown client `user:x`",
            ),
            ("\n[allow\n", 2, "no rights"),
            ("[[alow]]\nwho = 'anyone'\n", 1, "`alow`"),
        ] {
            let failure = of(text).unwrap_err();
            let said = failure.message();
            assert!(said.contains(&format!("line {line}: ")), "{text}: {said}");
            assert!(said.contains(words), "{text}: {said}");
        }
        let absent = read(Path::new("/no/such/file")).unwrap_err();
        assert!(absent.message().contains("/no/such/file"));
    }
}
