//! Completions and manual pages: made of the same description as the arguments, and taken by who reads them.

mod common;

use std::io::Write;
use std::process::{Command, Stdio};

use common::{dunlin, failure};

#[test]
fn shells_are_told_all_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = dunlin(&["completions", shell]);
        assert!(output.status.success(), "{output:?}");
        let script = String::from_utf8(output.stdout).expect("UTF-8");
        for word in ["serve", "ping", "histogram", "max-message-bytes"] {
            assert!(script.contains(word), "{shell}: no {word}");
        }
    }
    assert_eq!(dunlin(&["completions", "csh"]).status.code(), Some(2));
}

#[test]
fn bash_completes_a_command() {
    let Ok(mut bash) = Command::new("bash")
        .arg("-s")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
    else {
        println!("skipped: no bash");
        return;
    };
    let mut script = dunlin(&["completions", "bash"]).stdout;
    script.extend(
        b"\nCOMP_WORDS=(dunlin pi)\nCOMP_CWORD=1\n_dunlin dunlin pi dunlin\necho \"${COMPREPLY[@]}\"\n",
    );
    let mut input = bash.stdin.take().expect("its input");
    input.write_all(&script).expect("it reads");
    drop(input);
    let output = bash.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "ping");
}

#[test]
fn every_command_has_a_page() {
    let folder = std::env::temp_dir().join(format!("dunlin-man-{}", std::process::id()));
    let name = folder.to_str().expect("UTF-8");
    assert!(dunlin(&["man", "--out", name]).status.success());
    let read = |page: &str| std::fs::read_to_string(folder.join(page)).expect(page);
    let first = read("dunlin.1");
    assert_eq!(dunlin(&["man"]).stdout, first.as_bytes());
    for page in ["dunlin-serve.1", "dunlin-perf-rpc.1", "dunlin-kv-get.1"] {
        let text = read(page);
        assert!(text.contains(".SH OPTIONS"), "{page}");
    }
    assert!(read("dunlin-serve.1").contains("dunlin serve kv"));
    // What is a part of other commands is no command of the user's.
    assert!(!folder.join("dunlin-perf-verbs-peer.1").exists());
    std::fs::remove_dir_all(&folder).expect("its folder");
    failure(&dunlin(&["man", "--out", "/proc/nope"]), 1);
}
