use alloc::string::ToString;

use zcomp::Params;

use crate::switchboard::{ALGORITHMS, DEFAULT_ALGORITHM, Variants, codec};

#[test]
fn unknown_names_are_told_the_known_ones() {
    let Err(fault) = codec("lzma", &Params::default()) else { panic!("lzma is no codec here") };
    assert!(
        fault.to_string().contains("there are: lzo-rle lzo lz4 lz4hc zstd deflate 842"),
        "{fault}"
    );
    let variants = Variants { slots: "hope".into(), ..Variants::default() };
    let fault = variants.check().unwrap_err();
    assert!(fault.to_string().contains("bit-spinlock"), "{fault}");
    Variants::default().check().unwrap();
}

#[test]
fn levels_are_judged() {
    let level = |level: i32| Params::at_level(level);
    assert!(codec("zstd", &level(-5)).is_ok());
    assert!(codec("zstd", &level(1000)).is_err());
    assert!(codec("lz4", &level(0)).is_err());
}

#[test]
fn every_name_opens_its_codec() {
    for name in ALGORITHMS {
        let codec = codec(name, &Params::default()).unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(codec.name(), *name);
    }
    assert!(ALGORITHMS.contains(&DEFAULT_ALGORITHM));
}
