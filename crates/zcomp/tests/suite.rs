//! The suite on every codec, and on codecs that are wrong.

mod common;

use common::broken::{Broken, Wrong};
use common::suite::conforms;

#[test]
fn every_codec_conforms() {
    let seed = testkit::seed("every_codec_conforms");
    let mut codecs = common::codecs();
    codecs.extend(common::codecs_with(&common::dictionary(65_536, seed)));
    // The shortest that may be, at the default level.
    let shortest = common::codecs_with(&common::dictionary(8, seed)).into_iter();
    codecs.extend(shortest.filter(|(name, _)| name.contains("None")));
    std::thread::scope(|scope| {
        for (name, codec) in &codecs {
            scope.spawn(move || {
                let verdict = conforms(&**codec, seed);
                assert_eq!(verdict, Ok(()), "{name}");
            });
        }
    });
}

#[test]
fn the_suite_refuses_wrong_codecs() {
    let seed = testkit::seed("the_suite_refuses_wrong_codecs");
    assert_eq!(conforms(&Broken::new(Wrong::Nothing), seed), Ok(()));
    for (wrong, reason) in [
        (Wrong::LosesLastByte, "does not come back"),
        (Wrong::IgnoresLength, "accepted"),
        (Wrong::IgnoresTail, "bytes too many"),
        (Wrong::SaysItFits, "bytes fit into"),
        (Wrong::WantsMoreRoom, "does not fit into the"),
        (Wrong::WritesPastRoom, "wrote outside the buffer"),
        (Wrong::Remembers, "compress"),
        (Wrong::SharesState, "compress"),
        (Wrong::ChangesAByte, "does not come back"),
        (Wrong::BareDiffers, "not always the same page"),
    ] {
        let verdict = conforms(&Broken::new(wrong), seed);
        let refused = verdict.as_ref().is_err_and(|why| why.contains(reason));
        assert!(refused, "{wrong:?}: {verdict:?}");
    }
}
