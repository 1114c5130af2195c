#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::decompress_lz4(input));
