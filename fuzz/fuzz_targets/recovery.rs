#![no_main]

#[path = "../recovery.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::recovery(data));
