//! What the book shows of an output, compared with what came: `...` stands for anything within a line, and alone on a
//! line for any number of lines.

/// Whether the lines that came are those that are shown.
pub(crate) fn agree(shown: &[String], came: &[&str]) -> bool {
    match (shown.split_first(), came.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first.trim() == "..." => {
            (0..=came.len()).any(|skipped| agree(rest, &came[skipped..]))
        }
        (Some((first, rest)), Some((line, others))) => {
            line_agrees(first.trim_end(), line.trim_end()) && agree(rest, others)
        }
        _ => false,
    }
}

fn line_agrees(shown: &str, came: &str) -> bool {
    let mut parts = shown.split("...");
    let Some(mut rest) = parts.next().and_then(|first| came.strip_prefix(first)) else {
        return false;
    };
    let others: Vec<&str> = parts.collect();
    let Some((last, middle)) = others.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(place) => rest = &rest[place + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Cases that must come out as they say; a comparison that agrees with everything would check nothing.
pub(crate) fn check() {
    let shown = |lines: &[&str]| {
        lines
            .iter()
            .map(|&line| line.to_owned())
            .collect::<Vec<_>>()
    };
    assert!(agree(
        &shown(&["over shm (...)", "..."]),
        &["over shm (same host)", "a", "b"]
    ));
    assert!(agree(&shown(&["...", "c"]), &["a", "b", "c"]));
    assert!(agree(&shown(&["1... of ...4"]), &["12 of 34"]));
    assert!(!agree(&shown(&["1... of ...5"]), &["12 of 34"]));
    assert!(!agree(&shown(&["a"]), &["a", "b"]));
    assert!(!agree(&shown(&["a"]), &[]));
    assert!(!agree(&shown(&[]), &["a"]));
    assert!(!agree(&shown(&["over shm"]), &["over roce"]));
}
