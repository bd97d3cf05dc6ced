#![no_main]

#[path = "../pack.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::pack(data));
