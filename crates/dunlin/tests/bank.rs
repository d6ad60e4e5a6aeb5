//! The example `bank`, as its page says it is used: money is neither made nor lost.

use std::process::Command;

#[test]
fn the_bank_has_as_much_money_as_before() {
    // Examples stand beside the directory of the tests.
    let mut program = std::env::current_exe().unwrap();
    program.pop();
    program.pop();
    program.push("examples/bank");
    let output = Command::new(&program).output();
    let output = output.unwrap_or_else(|error| {
        panic!(
            "{}: {error}; `cargo build -p dunlin --example bank` makes it",
            program.display()
        )
    });
    let said = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert_eq!(said, "10000 in all accounts\n");
}
