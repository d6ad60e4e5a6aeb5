//! `Address::from_str`: no text makes it panic, and what it takes is shown and read again as the same.
#![no_main]

use dunlin_bootstrap::Address;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(address) = text.parse::<Address>() {
        assert_eq!(address.to_string().parse(), Ok(address));
    }
});
