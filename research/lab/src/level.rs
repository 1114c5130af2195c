//! Names of codecs with the level they run at, as tables show them.

/// The default level of a codec; for lz4 it is the acceleration. `None` for a codec without levels.
pub fn default_level(name: &str) -> Option<i32> {
    match name {
        zcomp::LZ4 => Some(1),
        zcomp::LZ4HC => Some(9),
        zcomp::ZSTD => Some(3),
        zcomp::DEFLATE => Some(6),
        _ => None,
    }
}

/// The codec `name` with its level, or with the default level: `zstd:3`.
pub fn named(name: &str, level: Option<i32>) -> String {
    match level.or(default_level(name)) {
        None => name.to_owned(),
        Some(level) => format!("{name}:{level}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::PAGE_SIZE;
    use zcomp::Params;

    #[test]
    fn defaults_are_those_of_the_codecs() {
        let mut page = [0; PAGE_SIZE];
        let mut random = fastrand::Rng::with_seed(1);
        page.iter_mut().for_each(|byte| *byte = random.u8(..) & 0x13);
        for name in zcomp::ALGORITHMS {
            let compressed = |level: Option<i32>| {
                let codec = zcomp::open(name, &Params::at_level(level)).expect("a level");
                let mut room = vec![0; 2 * PAGE_SIZE];
                let length = codec.context().expect("memory").compress(&page, &mut room);
                room.truncate(length.expect("it shrinks"));
                room
            };
            match default_level(name) {
                None => assert!(zcomp::open(name, &Params::at_level(Some(1))).is_err(), "{name}"),
                level => assert!(compressed(level) == compressed(None), "{name}"),
            }
        }
        assert_eq!(named("zstd", Some(-1)), "zstd:-1");
        assert_eq!((named("lz4", None), named("lzo", None)), ("lz4:1".into(), "lzo".into()));
    }
}
