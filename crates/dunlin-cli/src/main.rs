//! The `dunlin` command.

fn main() {}
