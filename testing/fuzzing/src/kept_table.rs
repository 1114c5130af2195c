//! The target of the table of kept state.

/// The size of a page of the system that the tables are of.
const PAGE: u32 = 4096;

/// The bytes of a file with a table of kept state.
///
/// If the first byte is even, the rest is the whole file. Otherwise the rest is the text of a table
/// whose frame is right. What is accepted must be the same after it is written and read again.
pub fn kept_table(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else { return };
    let decoded = match first % 2 {
        0 => kept::decode(rest, PAGE),
        _ => kept::image(PAGE, rest).and_then(|bytes| kept::decode(&bytes, PAGE)),
    };
    match decoded {
        Ok((_, contents)) => {
            let file = host::Memfds::new().file(kept::Table::BYTES).expect("memory");
            let mut table = kept::Table::create(file.try_clone().expect("a copy"), PAGE)
                .expect("an empty table");
            table.write(&contents).expect("what was read can be written");
            let again = kept::Table::open(file, PAGE).expect("what was written can be read");
            assert_eq!(again.1, contents);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        r#"{"regions":[],"devices":[]}"#,
        r#"{"regions":[{"name":"frames","descriptor":"frames","bytes":2097152}],"devices":[]}"#,
        r#"{"regions":[{"name":"a","descriptor":"x","bytes":0},
            {"name":"b","descriptor":"y","bytes":1}],"devices":[]}"#,
        r#"{"regions":[],"devices":[{"name":"zram0","bytes":1073741824,"generation":1,
            "settings":{"comp_algorithm":"zstd","algorithm_params":"level=3"}}]}"#,
    ];
    let mut seeds: Vec<Vec<u8>> =
        texts.iter().map(|text| [b"1", text.as_bytes()].concat()).collect();
    // The beginning of a whole file, up to the current copy, would be too long to mutate.
    let whole = kept::image(PAGE, texts[0].as_bytes()).expect("it fits");
    seeds.push([b"0", &whole[..4096]].concat());
    seeds
}
