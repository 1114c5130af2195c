//! What makes no sense is refused, by every command, with a message that names it.

use std::fs;

use control::Errno;
use machine::HostSystem;
use zram::HostFiles;

use crate::common::{Place, write_corpus};

/// Command lines, and a word of the message for each. Files are made by the test.
const REFUSED: &str = include_str!("refused.txt");

#[test]
fn nonsense_is_refused_and_named() {
    let place = Place::new();
    write_corpus(&place.path("c"), 1000);
    fs::write(place.path("zeros"), [0; 8192]).expect("a file");
    fs::write(place.path("tiny"), [1; 4095]).expect("a file");
    fs::write(place.path("short.pages"), [1; 4096]).expect("a file");
    fs::create_dir(place.path("empty")).expect("a directory");
    for line in REFUSED.lines().filter(|line| !line.starts_with('#')) {
        let (line, word) = line.split_once(" => ").expect("a line and a word");
        let message = place.refused(line);
        assert!(message.contains(word), "{line}: {word:?} is missing in {message}");
    }
    place.assert_nothing_left();
}

/// The tests of the product have all features. Here it is without them.
#[test]
fn a_build_without_remote_stores_names_the_feature() {
    let error = HostSystem.check_remote("fs:///directory").unwrap_err();
    assert_eq!(error.errno, Errno::ENOTSUP);
    assert!(error.message.contains("--features remote"), "{error}");
}
