//! The conformance suite: one function per behaviour, written once, run by every device.
