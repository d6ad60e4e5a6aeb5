//! The comparison with tonic works: every way answers, tonic over a stream of Dunlin's among them.

use std::process::Command;

#[test]
fn every_way_answers() {
    let program = env!("CARGO_BIN_EXE_compare");
    let output = Command::new(program).arg("--quick").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert_eq!(said.lines().count(), 8, "{said}");
    for way in [
        "raw",
        "typed, inline",
        "typed, async",
        "over Stream",
        "Unix",
        "TCP",
    ] {
        let row = said
            .lines()
            .find(|line| line.contains(way))
            .unwrap_or_else(|| panic!("{way}: {said}"));
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        for rate in [cells[2], cells[4]] {
            assert!(rate.parse::<u64>().unwrap() > 0, "{row}");
        }
    }
}
