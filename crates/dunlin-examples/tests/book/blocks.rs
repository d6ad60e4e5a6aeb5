//! Chapters as text: links of the summary, fenced blocks, `{{#include}}` as mdBook knows it, commands and what they
//! print.

use std::path::{Path, PathBuf};

/// A fenced block.
#[derive(Debug)]
pub(crate) struct Block {
    /// The line of its fence, from 1.
    pub(crate) line: usize,
    /// The first word of the fence.
    pub(crate) language: String,
    /// The other words of the fence.
    pub(crate) marks: Vec<String>,
    pub(crate) body: Vec<String>,
}

impl Block {
    pub(crate) fn is_marked(&self, mark: &str) -> bool {
        self.marks.iter().any(|word| word == mark)
    }

    /// Path, and anchor, of each `{{#include PATH:ANCHOR}}`, when the block is made of nothing else.
    pub(crate) fn includes(&self) -> Option<Vec<(String, String)>> {
        let lines = self.body.iter().filter(|line| !line.trim().is_empty());
        let parts = lines.map(|line| {
            let path = line
                .trim()
                .strip_prefix("{{#include ")?
                .strip_suffix("}}")?;
            let (path, anchor) = path.split_once(':').unwrap_or((path, ""));
            Some((path.to_owned(), anchor.to_owned()))
        });
        let includes: Vec<_> = parts.collect::<Option<_>>()?;
        (!includes.is_empty()).then_some(includes)
    }
}

/// The files that a summary links to, in order.
pub(crate) fn links(summary: &str) -> Vec<String> {
    let parts = summary.split("](").skip(1);
    let links = parts.filter_map(|part| Some(part.split_once(')')?.0.to_owned()));
    links.collect()
}

/// All fenced blocks of a chapter.
pub(crate) fn blocks(chapter: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in chapter.lines().enumerate() {
        match (open.take(), line.trim_start().strip_prefix("```")) {
            (Some(block), Some(_)) => blocks.push(block),
            (Some(mut block), None) => {
                block.body.push(line.to_owned());
                open = Some(block);
            }
            (None, Some(info)) => {
                let mut words = info.split(',').map(|word| word.trim().to_owned());
                open = Some(Block {
                    line: number + 1,
                    language: words.next().unwrap_or_default(),
                    marks: words.collect(),
                    body: Vec::new(),
                });
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block has no end: {open:?}");
    blocks
}

/// The lines of a file between `ANCHOR: NAME` and `ANCHOR_END: NAME`, or all of it.
pub(crate) fn included(
    beside: &Path,
    path: &str,
    anchor: &str,
) -> Result<(PathBuf, String), String> {
    let file = beside.join(path);
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{path}: {error}"))?;
    if anchor.is_empty() {
        return Ok((file, text));
    }
    let is = |line: &str, word: &str| {
        let rest = line.split_once(word).map(|(_, rest)| rest.trim());
        rest == Some(anchor)
    };
    let mut lines = text.lines().skip_while(|line| !is(line, "ANCHOR: "));
    lines
        .next()
        .ok_or_else(|| format!("{path} has no anchor {anchor}"))?;
    let mut part = String::new();
    for line in lines {
        if is(line, "ANCHOR_END: ") {
            return Ok((file, part));
        }
        part.push_str(line);
        part.push('\n');
    }
    Err(format!("{path}: the anchor {anchor} has no end"))
}

/// A command of a block, and what the block shows of its output; `None`: nothing is said about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) line: String,
    pub(crate) output: Option<Vec<String>>,
}

/// Commands of a block: all lines, or those behind `$ ` where there are such, and then the others are output. A line
/// that ends with `\` goes on.
pub(crate) fn commands(body: &[String]) -> Vec<Command> {
    let prompted = body.iter().any(|line| line.starts_with("$ "));
    let mut commands: Vec<Command> = Vec::new();
    let mut goes_on = false;
    for line in body {
        let command = match prompted {
            true => line.strip_prefix("$ "),
            false => Some(line.as_str()),
        };
        match (goes_on, command, commands.last_mut()) {
            (true, _, Some(last)) => last.line = format!("{} {}", last.line, line.trim()),
            (_, Some(command), _) => {
                if command.trim().is_empty() || command.trim_start().starts_with('#') {
                    continue;
                }
                commands.push(Command {
                    line: command.to_owned(),
                    output: prompted.then(Vec::new),
                });
            }
            (
                _,
                None,
                Some(Command {
                    output: Some(output),
                    ..
                }),
            ) => output.push(line.clone()),
            (_, None, _) => panic!("output before the first command: {line}"),
        }
        goes_on = commands
            .last()
            .is_some_and(|last| last.line.ends_with('\\'))
            && {
                let last = commands.last_mut().expect("there is one");
                last.line.pop();
                true
            };
    }
    commands
}
