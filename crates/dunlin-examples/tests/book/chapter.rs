//! One chapter: its blocks in order, its servers until its end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::blocks::{self, Block, Command};
use crate::expected;
use crate::links;
use crate::ports::Ports;
use crate::processes::{self, Running};
use crate::tools::Tools;

/// What came of chapters.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) blocks: usize,
    /// Blocks that cannot run on this machine, and chapters that lack a tool.
    pub(crate) not_here: Vec<String>,
    pub(crate) failures: Vec<String>,
    /// Programs of which blocks show a part, and where.
    pub(crate) shown: BTreeMap<String, String>,
    /// Programs that a line ran.
    pub(crate) ran: BTreeSet<String>,
}

impl Report {
    pub(crate) fn fail(&mut self, words: String) {
        self.failures.push(words);
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.not_here.extend(other.not_here);
        self.failures.extend(other.failures);
        self.shown.extend(other.shown);
        self.ran.extend(other.ran);
    }
}

/// Runs a chapter.
pub(crate) fn run(book: &Path, file: &str, tools: &Tools) -> Report {
    expected::check();
    let mut report = Report::default();
    let text = match std::fs::read_to_string(book.join(file)) {
        Ok(text) => text,
        Err(error) => {
            report.fail(format!("{file}: {error}"));
            return report;
        }
    };
    for link in links::broken(book, file, &text) {
        report.fail(format!("{file}: {link}"));
    }
    let folder = tools.folder(file);
    let needs = text
        .lines()
        .find_map(|line| line.strip_prefix("<!-- needs: "));
    let needs = needs
        .and_then(|rest| rest.strip_suffix(" -->"))
        .unwrap_or_default();
    let lacks = needs
        .split_whitespace()
        .find_map(|what| tools.prepare(what, &folder).err());
    let mut chapter = Chapter {
        book,
        folder,
        tools,
        ports: Ports::default(),
        jobs: Vec::new(),
        written: BTreeMap::new(),
        runs: lacks.is_none(),
    };
    if let Some(why) = lacks {
        report
            .not_here
            .push(format!("the commands of {file}: {why}"));
    }
    for block in blocks::blocks(&text) {
        let place = format!("{file}:{}", block.line);
        report.blocks += 1;
        if let Err(words) = chapter.block(&block, &place, &mut report) {
            report.fail(format!("{place}: {words}"));
        }
    }
    for (name, place) in std::mem::take(&mut chapter.written) {
        report.fail(format!("{place}: no later line uses {name}"));
    }
    report
}

struct Chapter<'a> {
    book: &'a Path,
    folder: PathBuf,
    tools: &'a Tools,
    ports: Ports,
    /// What was started with `&`, in order: `%1` is the first.
    jobs: Vec<Running>,
    /// Files that blocks have written or shown and no line has used yet, and where.
    written: BTreeMap<String, String>,
    /// Whether this machine has what the chapter needs.
    runs: bool,
}

impl Chapter<'_> {
    fn block(&mut self, block: &Block, place: &str, report: &mut Report) -> Result<(), String> {
        if block.is_marked("not-here") {
            report.not_here.push(place.to_owned());
            return Ok(());
        }
        for mark in &block.marks {
            let tool = mark.strip_prefix("needs-");
            let tool = tool.ok_or_else(|| format!("nobody knows the mark '{mark}'"))?;
            if let Err(why) = self.tools.prepare(tool, &self.folder) {
                report.not_here.push(format!("{place}: {why}"));
                return Ok(());
            }
        }
        match (block.language.as_str(), block.includes()) {
            ("sh", None) => self.shell(block, report),
            ("rust" | "c" | "cpp" | "python" | "toml" | "proto", Some(includes)) => includes
                .iter()
                .try_for_each(|(path, anchor)| self.show(path, anchor, place, report)),
            ("rust", None) => Err("Rust is included from an example, so that it is run".to_owned()),
            ("toml", None)
                if block
                    .body
                    .first()
                    .is_some_and(|line| line == "# Cargo.toml") =>
            {
                check_manifest(&block.body.join("\n"))
            }
            ("c" | "python" | "toml" | "proto", None) => self.write(block, place),
            (language, _) => Err(format!("nobody runs a block of '{language}'")),
        }
    }

    /// A part of a program or of a file that commands use.
    fn show(
        &mut self,
        path: &str,
        anchor: &str,
        place: &str,
        report: &mut Report,
    ) -> Result<(), String> {
        let (file, part) = blocks::included(self.book, path, anchor)?;
        if part.trim().is_empty() {
            return Err(format!("{path}: nothing is included"));
        }
        let (name, stem) = (file.file_name(), file.file_stem());
        let (Some(name), Some(stem)) =
            (name.and_then(|n| n.to_str()), stem.and_then(|n| n.to_str()))
        else {
            return Err(format!("{path}: it has no name"));
        };
        if path.contains("dunlin-examples/src/bin/") {
            report.shown.insert(stem.to_owned(), place.to_owned());
        } else if self.runs && !path.contains("dunlin-examples/proto/") {
            self.written.insert(name.to_owned(), place.to_owned());
        }
        Ok(())
    }

    /// A file with the name in its first line, a comment.
    fn write(&mut self, block: &Block, place: &str) -> Result<(), String> {
        let first = block.body.first().map(String::as_str).unwrap_or_default();
        let name = first.trim_start_matches(['#', '/', ' ']);
        if name == first || name.is_empty() || name.contains([' ', '/']) {
            return Err("its first line is no comment with the name of a file".to_owned());
        }
        let text = block.body.join("\n") + "\n";
        std::fs::write(self.folder.join(name), text).map_err(|error| format!("{name}: {error}"))?;
        if self.runs {
            self.written.insert(name.to_owned(), place.to_owned());
        }
        Ok(())
    }

    fn shell(&mut self, block: &Block, report: &mut Report) -> Result<(), String> {
        for Command { line, output } in blocks::commands(&block.body) {
            let mut words = line.split_whitespace();
            while let Some(word) = words.next() {
                let used = |name: &String| word.ends_with(name.as_str());
                self.written.retain(|name, _| !used(name));
                if word == "--bin" {
                    report.ran.extend(words.next().map(str::to_owned));
                }
            }
            if self.runs {
                self.command(&line, output.as_deref())
                    .map_err(|words| format!("`{line}`: {words}"))?;
            }
        }
        Ok(())
    }

    fn command(&mut self, line: &str, shown: Option<&[String]>) -> Result<(), String> {
        let line = self.ports.replace(line);
        let shown: Option<Vec<String>> = shown.map(|lines| {
            let lines = lines.iter().map(|line| self.ports.replace(line));
            lines.collect()
        });
        let bare = line.split("  #").next().unwrap_or_default().trim_end();
        if let Some(job) = bare.strip_suffix('&') {
            let expected = shown.as_ref().map_or(1, Vec::len);
            let mut shell = self.tools.shell(&self.folder);
            let (running, said) = Running::start(&mut shell, job.trim_end(), expected)?;
            self.jobs.push(running);
            return compare(shown.as_deref(), &said.join("\n"));
        }
        if let Some(rest) = bare.strip_prefix("kill ") {
            let (name, job) = match rest.split_once(" %") {
                Some(("-9", job)) => ("KILL", job),
                None => ("TERM", rest.trim_start_matches('%')),
                _ => return Err("`kill %1` or `kill -9 %1`".to_owned()),
            };
            let job = job
                .parse()
                .ok()
                .and_then(|number: usize| number.checked_sub(1));
            let job = job
                .and_then(|index| self.jobs.get_mut(index))
                .ok_or("there is no such job")?;
            job.end(name);
            return Ok(());
        }
        let ended = processes::run(&mut self.tools.shell(&self.folder), &line)?;
        let fails = |lines: &Vec<String>| {
            lines.iter().any(|line| {
                ["error: ", "Error: "]
                    .iter()
                    .any(|word| line.starts_with(word))
            })
        };
        if ended.status.success() == shown.as_ref().is_some_and(fails) {
            return Err(format!("{}\n{}", ended.status, ended.said));
        }
        compare(shown.as_deref(), &ended.said)
    }
}

fn compare(shown: Option<&[String]>, came: &str) -> Result<(), String> {
    let Some(shown) = shown else { return Ok(()) };
    let lines: Vec<&str> = came.lines().collect();
    match expected::agree(shown, &lines) {
        true => Ok(()),
        false => Err(format!(
            "the book shows\n{}\nand what came is\n{came}",
            shown.join("\n")
        )),
    }
}

/// A manifest of a user's: each crate of ours that it names is where it says, and has the features that it asks for.
fn check_manifest(text: &str) -> Result<(), String> {
    let manifest: toml::Table = text.parse().map_err(|error| format!("{error}"))?;
    for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
        let Some(dependencies) = manifest.get(section).and_then(toml::Value::as_table) else {
            continue;
        };
        for (name, dependency) in dependencies
            .iter()
            .filter(|(name, _)| name.starts_with("dunlin"))
        {
            let path = dependency.get("path").and_then(toml::Value::as_str);
            let path = path.and_then(|path| path.strip_prefix("../dunlin/"));
            let path = path.ok_or_else(|| format!("{name}: its path is not ../dunlin/..."))?;
            let file = crate::root().join(path).join("Cargo.toml");
            let there =
                std::fs::read_to_string(file).map_err(|error| format!("{path}: {error}"))?;
            let there: toml::Table = there.parse().map_err(|error| format!("{path}: {error}"))?;
            let features = dependency.get("features").and_then(toml::Value::as_array);
            for feature in features
                .into_iter()
                .flatten()
                .filter_map(toml::Value::as_str)
            {
                if there
                    .get("features")
                    .is_none_or(|all| all.get(feature).is_none())
                {
                    return Err(format!("{name} has no feature {feature}"));
                }
            }
        }
    }
    Ok(())
}
