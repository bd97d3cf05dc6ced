#![no_main]

#[path = "../deflate.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::deflate(data));
