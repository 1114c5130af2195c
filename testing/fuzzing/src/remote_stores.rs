//! The target of what a user says of remote stores.

use control::without_secrets;
use remote::{MOST_STORES, Options};

/// A text for `backing_remote`. What is accepted has stores and copies in bounds, and what is shown
/// of it has no secrets and is accepted, too. A refusal says something.
pub fn remote_stores(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match text.parse::<Options>() {
        Ok(options) => {
            assert!((1..=MOST_STORES).contains(&options.stores.len()), "{text:?}");
            assert!((1..=options.stores.len()).contains(&options.copies), "{text:?}");
            let shown = options.shown();
            let again: Options = shown.parse().expect("what is shown is accepted");
            assert_eq!(again.shown(), shown, "{text:?}");
            for uri in &options.stores {
                assert_eq!(without_secrets(&without_secrets(uri)), without_secrets(uri));
            }
        }
        Err(error) => assert!(!error.message.is_empty()),
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 4] = [
        b"redis://me:word@host:6379/2 cold=5",
        b"s3://bucket/a/b?region=x&secret_access_key=k copies=1 keep=1G",
        b"fs:///a fs:///b bandwidth=1M requests=100 deadline=250",
        b"cold=x",
    ];
    texts.map(<[u8]>::to_vec).to_vec()
}
