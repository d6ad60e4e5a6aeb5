//! Flow files of other simulators: the flow file of HPCC's ns-3, and the connection matrix of htsim.

/// Format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The number of flows, then a line for each: source, destination, priority group, port, bytes, start in seconds.
    Hpcc,
    /// Words with values: nodes, connections, then `0->15 start 0 size 2000000` for each, start in picoseconds.
    Htsim,
}

/// Names of the formats in experiments.
pub(super) const FORMS: [&str; 2] = ["hpcc", "htsim"];

impl Form {
    /// The format with this name of [`FORMS`].
    pub(super) fn named(name: &str) -> Self {
        match name == FORMS[0] {
            true => Self::Hpcc,
            false => Self::Htsim,
        }
    }
}

/// A flow from a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Listed {
    /// Line number in the file, from 1.
    pub(super) line: usize,
    /// Numbers of nodes.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) bytes: u64,
    pub(super) start_ns: f64,
}

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ListError {
    #[error("empty file: the first line must be the number of flows")]
    Empty,
    #[error("line 1: expected the number of flows, found \"{found}\"")]
    Count { found: String },
    #[error("line {line}: expected `SOURCE DESTINATION GROUP PORT BYTES START`, with START in seconds: {what}")]
    Hpcc { line: usize, what: String },
    #[error("line {line}: expected `SOURCE->DESTINATION start PICOSECONDS size BYTES`: {what}")]
    Htsim { line: usize, what: String },
    #[error("line {line}: `{word}` is not supported: give flows by their start and size")]
    Unknown { line: usize, word: String },
    #[error("the file contains {found} flows, but states {wanted}")]
    TooFew { found: usize, wanted: usize },
}

/// Parses the flows of a file.
pub(super) fn parse(text: &str, form: Form) -> Result<Vec<Listed>, ListError> {
    match form {
        Form::Hpcc => hpcc(text),
        Form::Htsim => htsim(text),
    }
}

fn number<T: std::str::FromStr>(word: Option<&str>, name: &str) -> Result<T, String> {
    let word = word.ok_or_else(|| format!("missing {name}"))?;
    let parsed = word.parse();
    parsed.map_err(|_| format!("invalid {name} \"{word}\""))
}

/// Parses like that simulator: as many flows as the first line says, and nothing behind them.
fn hpcc(text: &str) -> Result<Vec<Listed>, ListError> {
    let lines = text.lines().zip(1..);
    let mut lines = lines.filter(|(line, _)| !line.trim().is_empty());
    let (first, _) = lines.next().ok_or(ListError::Empty)?;
    let wanted: usize = first.trim().parse().map_err(|_| ListError::Count {
        found: first.trim().to_owned(),
    })?;
    let flows = lines.take(wanted).map(|(text, line)| {
        let mut words = text.split_whitespace();
        let mut read = || {
            let (from, to) = (
                number(words.next(), "source")?,
                number(words.next(), "destination")?,
            );
            let _group: u64 = number(words.next(), "group")?;
            let _port: u64 = number(words.next(), "port")?;
            let bytes = number(words.next(), "bytes")?;
            let start: f64 = number(words.next(), "start")?;
            Ok(Listed {
                line,
                from,
                to,
                bytes,
                start_ns: start * 1e9,
            })
        };
        read().map_err(|what| ListError::Hpcc { line, what })
    });
    let flows = flows.collect::<Result<Vec<_>, _>>()?;
    match flows.len() < wanted {
        true => Err(ListError::TooFew {
            found: flows.len(),
            wanted,
        }),
        false => Ok(flows),
    }
}

fn htsim(text: &str) -> Result<Vec<Listed>, ListError> {
    let (mut flows, mut wanted) = (Vec::new(), 0);
    for (text, line) in text.lines().zip(1..) {
        let mut words = text.split_whitespace();
        let Some(first) = words.next().filter(|word| !word.starts_with('#')) else {
            continue;
        };
        let wrong = |what| ListError::Htsim { line, what };
        match (first, first.split_once("->")) {
            ("Nodes", _) => {}
            ("Connections", _) => wanted = number(words.next(), "number").map_err(wrong)?,
            (_, Some((from, to))) => {
                let (mut start, mut bytes) = (None, None);
                while let Some(word) = words.next() {
                    match word {
                        "start" => start = Some(number(words.next(), "start").map_err(wrong)?),
                        "size" => bytes = Some(number(words.next(), "size").map_err(wrong)?),
                        "id" | "prio" => drop(words.next()),
                        other => {
                            let word = other.to_owned();
                            return Err(ListError::Unknown { line, word });
                        }
                    }
                }
                let missing = |name: &str| wrong(format!("missing {name}"));
                let start: f64 = start.ok_or_else(|| missing("start"))?;
                flows.push(Listed {
                    line,
                    from: number(Some(from), "source").map_err(wrong)?,
                    to: number(Some(to), "destination").map_err(wrong)?,
                    bytes: bytes.ok_or_else(|| missing("size"))?,
                    start_ns: start / 1e3,
                });
            }
            (other, None) => {
                let word = other.to_owned();
                return Err(ListError::Unknown { line, word });
            }
        }
    }
    match flows.len() < wanted {
        true => Err(ListError::TooFew {
            found: flows.len(),
            wanted,
        }),
        false => Ok(flows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_file_ends_where_its_first_line_says() {
        let flows = hpcc(
            "2\n2 1 3 100 5000 2\n\n3 1 3 100 7000 2.000001\n4 1 3 100 1 2\nFirst line: flows\n",
        );
        let flows = flows.unwrap();
        assert_eq!(flows.len(), 2);
        assert_eq!((flows[0].from, flows[0].to, flows[0].bytes), (2, 1, 5000));
        assert_eq!((flows[1].line, flows[1].bytes), (4, 7000));
        assert!((flows[1].start_ns - 2.000_001e9).abs() < 1e-3);
    }

    #[test]
    fn a_connection_matrix_has_words() {
        let flows = htsim(
            "Nodes 4\nConnections 2\n# none\n0->3 id 1 start 2000 size 9\n1->3 start 0 size 8\n",
        );
        let flows = flows.unwrap();
        assert_eq!((flows[0].from, flows[0].to, flows[0].bytes), (0, 3, 9));
        assert_eq!((flows[0].start_ns, flows[1].start_ns), (2.0, 0.0));
    }

    #[test]
    fn what_is_wrong_is_told_by_line() {
        let told = |text, form| parse(text, form).unwrap_err().to_string();
        for (text, message) in [
            ("", "empty file"),
            (
                "two\n",
                "line 1: expected the number of flows, found \"two\"",
            ),
            (
                "1\n2 1 3 100 5000\n",
                "line 2: expected `SOURCE DESTINATION",
            ),
            ("1\n2 1 3 100 many 2\n", "invalid bytes \"many\""),
            (
                "2\n2 1 3 100 5000 2\n",
                "the file contains 1 flows, but states 2",
            ),
        ] {
            assert!(told(text, Form::Hpcc).contains(message), "{text:?}");
        }
        for (text, message) in [
            ("0->1 start 0\n", "line 1: expected `SOURCE->DESTINATION"),
            (
                "0->1 start 0 size 5 trigger 2\n",
                "line 1: `trigger` is not supported",
            ),
            ("Failures 3\n", "line 1: `Failures` is not supported"),
            ("Connections 2\n0->1 start 0 size 5\n", "but states 2"),
        ] {
            assert!(told(text, Form::Htsim).contains(message), "{text:?}");
        }
    }
}
