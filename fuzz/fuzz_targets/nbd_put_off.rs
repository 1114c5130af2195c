#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::nbd_put_off(input));
