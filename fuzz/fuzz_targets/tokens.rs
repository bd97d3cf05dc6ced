#![no_main]

#[path = "../tokens.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::tokens(data));
