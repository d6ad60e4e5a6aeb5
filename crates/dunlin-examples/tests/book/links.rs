//! Links of a chapter lead to files that are there, and to headings that are in them.

use std::path::Path;

/// What is wrong with the links of a chapter.
pub(crate) fn broken(book: &Path, file: &str, chapter: &str) -> Vec<String> {
    let mut broken = Vec::new();
    for link in targets(chapter) {
        if link.starts_with("http") {
            continue;
        }
        let (path, heading) = link.split_once('#').unwrap_or((&link, ""));
        let path = if path.is_empty() { file } else { path };
        match std::fs::read_to_string(book.join(path)) {
            Err(error) => broken.push(format!("{link}: {error}")),
            Ok(text) if heading.is_empty() || headings(&text).any(|there| there == heading) => {}
            Ok(_) => broken.push(format!("{link}: there is no such heading")),
        }
    }
    broken
}

/// What stands behind `](`, outside of blocks; a link may go on in the next line.
fn targets(chapter: &str) -> Vec<String> {
    let mut prose = String::new();
    let mut in_block = false;
    for line in chapter.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    crate::blocks::links(&prose)
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn headings(text: &str) -> impl Iterator<Item = String> + '_ {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines.map(|line| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}
