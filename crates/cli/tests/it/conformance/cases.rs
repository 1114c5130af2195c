//! What is written to each attribute, and what comes of it.

/// A device, as a case finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Without a size.
    Fresh,
    /// With one, and empty.
    Sized,
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            State::Fresh => "fresh",
            State::Sized => "sized",
        }
    }
}

/// One thing written: what comes of it in either state, `ok` or the symbol of an error.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub attribute: &'static str,
    /// The text; `@a128` stands for 128 times the letter a.
    pub written: &'static str,
    pub fresh: &'static str,
    pub sized: &'static str,
}

/// In place of an outcome: this is not tried.
pub const NOT_TRIED: &str = "-";

/// The bytes that are written.
pub fn text_of(written: &str) -> String {
    let mut letters = written.chars();
    match (letters.next(), letters.next(), letters.as_str().parse()) {
        (Some('@'), Some(letter), Ok(times)) => letter.to_string().repeat(times),
        _ => written.to_string(),
    }
}

const fn case(
    attribute: &'static str,
    written: &'static str,
    fresh: &'static str,
    sized: &'static str,
) -> Case {
    Case { attribute, written, fresh, sized }
}

/// Every case. The outcomes are those of Linux's zram (drivers/block/zram, seen from outside and
/// in Documentation/admin-guide/blockdev/zram.rst), but for what docs/compatibility.md says.
pub const CASES: &[Case] = &[
    case("disksize", "1M", "ok", "EBUSY"),
    case("disksize", "1m\n", "ok", "EBUSY"),
    case("disksize", "1048576", "ok", "EBUSY"),
    case("disksize", "0x100000", "ok", "EBUSY"),
    case("disksize", "1", "ok", "EBUSY"),
    case("disksize", "0", "EINVAL", "EINVAL"),
    case("disksize", "\n", "EINVAL", "EINVAL"),
    case("disksize", "foo", "EINVAL", "EINVAL"),
    case("disksize", "-1", "EINVAL", "EINVAL"),
    case("disksize", "K", "EINVAL", "EINVAL"),
    case("disksize", "1Mfoo", "EINVAL", "EINVAL"),
    case("disksize", "1MB", "EINVAL", "EINVAL"),
    case("disksize", "1.5M", "EINVAL", "EINVAL"),
    case("disksize", "16E", "EINVAL", "EINVAL"),
    case("disksize", " 1M", "ok", "EBUSY"),
    case("disksize", "1M 2M", "EINVAL", "EINVAL"),
    case("disksize", "@04096", "EINVAL", "EINVAL"),
    case("reset", "1", "ok", "ok"),
    case("reset", "65535\n", "ok", "ok"),
    case("reset", "0", "EINVAL", "EINVAL"),
    case("reset", "\n", "EINVAL", "EINVAL"),
    case("reset", "foo", "EINVAL", "EINVAL"),
    case("reset", "-1", "EINVAL", "EINVAL"),
    case("reset", "1x", "EINVAL", "EINVAL"),
    case("reset", "0x1", "EINVAL", "EINVAL"),
    case("reset", "65536", "ERANGE", "ERANGE"),
    case("reset", " 1", "ok", "ok"),
    case("reset", "1\n\n", "ok", "ok"),
    case("reset", "@a4096", "EINVAL", "EINVAL"),
    case("comp_algorithm", "lz4", "ok", "EBUSY"),
    case("comp_algorithm", "lz4\n", "ok", "EBUSY"),
    case("comp_algorithm", "nosuch", "EINVAL", "EINVAL"),
    case("comp_algorithm", "lz", "EINVAL", "EINVAL"),
    case("comp_algorithm", "LZ4", "EINVAL", "EINVAL"),
    case("comp_algorithm", "lz4 lz4", "EINVAL", "EINVAL"),
    case("comp_algorithm", "\n", "EINVAL", "EINVAL"),
    case("comp_algorithm", " lz4", "ok", "EBUSY"),
    case("comp_algorithm", "lz4\n\n", "ok", "EBUSY"),
    case("comp_algorithm", "@a127", "EINVAL", "EINVAL"),
    case("comp_algorithm", "@a128", "E2BIG", "E2BIG"),
    case("comp_algorithm", "@a4096", "E2BIG", "E2BIG"),
    case("algorithm_params", "level=1", "ok", "EBUSY"),
    case("algorithm_params", "level", "EINVAL", "-"),
    case("algorithm_params", "level=foo", "EINVAL", "-"),
    case("algorithm_params", "level=99999999999", "ERANGE", "-"),
    case("algorithm_params", "algo=nosuch level=1", "EINVAL", "-"),
    case("algorithm_params", "colour=1", "EINVAL", "-"),
    case("algorithm_params", "foo", "EINVAL", "-"),
    case("algorithm_params", "priority=9 level=1", "EINVAL", "-"),
    case("algorithm_params", "@a4096", "EINVAL", "-"),
    case("max_comp_streams", "1", "ok", "ok"),
    case("max_comp_streams", "0", "EINVAL", "EINVAL"),
    case("max_comp_streams", "-1", "EINVAL", "EINVAL"),
    case("max_comp_streams", "\n", "EINVAL", "EINVAL"),
    case("max_comp_streams", "foo", "EINVAL", "EINVAL"),
    case("max_comp_streams", "2x", "EINVAL", "EINVAL"),
    case("mem_limit", "1M", "ok", "ok"),
    case("mem_limit", "1g\n", "ok", "ok"),
    case("mem_limit", "0", "ok", "ok"),
    case("mem_limit", "1", "ok", "ok"),
    case("mem_limit", "\n", "EINVAL", "EINVAL"),
    case("mem_limit", "foo", "EINVAL", "EINVAL"),
    case("mem_limit", "-1", "EINVAL", "EINVAL"),
    case("mem_limit", "1Mfoo", "EINVAL", "EINVAL"),
    case("mem_limit", " 1M", "ok", "ok"),
    case("mem_limit", "@a4096", "EINVAL", "EINVAL"),
    case("mem_used_max", "0", "ok", "ok"),
    case("mem_used_max", "0\n", "ok", "ok"),
    case("mem_used_max", "1", "EINVAL", "EINVAL"),
    case("mem_used_max", "\n", "EINVAL", "EINVAL"),
    case("mem_used_max", "foo", "EINVAL", "EINVAL"),
    case("mem_used_max", "-1", "EINVAL", "EINVAL"),
    case("mem_used_max", "0x", "EINVAL", "EINVAL"),
    case("mem_used_max", "00", "EINVAL", "EINVAL"),
    case("mem_used_max", " 0", "ok", "ok"),
    case("mem_used_max", "@a4096", "EINVAL", "EINVAL"),
    case("compact", "1", "EINVAL", "ok"),
    case("compact", "\n", "EINVAL", "ok"),
    case("compact", "foo", "EINVAL", "ok"),
    case("compact", "@a4096", "EINVAL", "ok"),
    case("recomp_algorithm", "algo=lz4", "ok", "EBUSY"),
    case("recomp_algorithm", "algo=lz4 priority=3", "ok", "EBUSY"),
    case("recomp_algorithm", "algo=lz4 priority=0", "EINVAL", "EINVAL"),
    case("recomp_algorithm", "algo=lz4 priority=4", "EINVAL", "EINVAL"),
    case("recomp_algorithm", "algo=lz4 priority=foo", "EINVAL", "-"),
    case("recomp_algorithm", "algo=nosuch", "EINVAL", "EINVAL"),
    case("recomp_algorithm", "algo", "EINVAL", "EINVAL"),
    case("recomp_algorithm", "priority=1", "EINVAL", "EINVAL"),
    case("recomp_algorithm", "\n", "EINVAL", "EINVAL"),
    case("recompress", "type=idle", "EINVAL", "EINVAL"),
    case("recompress", "type=foo", "EINVAL", "EINVAL"),
    case("recompress", "type", "EINVAL", "EINVAL"),
    case("recompress", "type=huge threshold=4096", "EINVAL", "EINVAL"),
    case("recompress", "type=huge priority=4", "EINVAL", "EINVAL"),
    case("recompress", "type=huge algo=nosuch", "EINVAL", "EINVAL"),
    case("idle", "all", "EINVAL", "ok"),
    case("idle", "all\n", "EINVAL", "ok"),
    case("idle", "60", "EINVAL", "ok"),
    case("idle", "0x3c\n", "EINVAL", "ok"),
    case("idle", "foo", "EINVAL", "EINVAL"),
    case("idle", "\n", "EINVAL", "EINVAL"),
    case("idle", "-1", "EINVAL", "EINVAL"),
    case("idle", "allx", "EINVAL", "EINVAL"),
    case("idle", "@a4096", "EINVAL", "EINVAL"),
    case("backing_dev", "/nonexistent/rampack", "ENOENT", "EBUSY"),
    case("backing_dev", "/dev/null", "ENOTBLK", "EBUSY"),
    case("writeback", "idle", "EINVAL", "ENODEV"),
    case("writeback", "type=idle", "EINVAL", "ENODEV"),
    case("writeback", "page_index=0", "EINVAL", "ENODEV"),
    case("writeback", "foo", "EINVAL", "ENODEV"),
    case("writeback_limit", "8", "ok", "ok"),
    case("writeback_limit", "0\n", "ok", "ok"),
    case("writeback_limit", "foo", "EINVAL", "EINVAL"),
    case("writeback_limit", "\n", "EINVAL", "EINVAL"),
    case("writeback_limit", "-1", "EINVAL", "EINVAL"),
    case("writeback_limit", "1x", "EINVAL", "EINVAL"),
    case("writeback_limit_enable", "1", "ok", "ok"),
    case("writeback_limit_enable", "0\n", "ok", "ok"),
    case("writeback_limit_enable", "foo", "EINVAL", "EINVAL"),
    case("writeback_limit_enable", "\n", "EINVAL", "EINVAL"),
    case("writeback_batch_size", "32", "ok", "ok"),
    case("writeback_batch_size", "99999999999", "ERANGE", "ERANGE"),
    case("writeback_batch_size", "0", "EINVAL", "EINVAL"),
    case("writeback_batch_size", "foo", "EINVAL", "EINVAL"),
    case("writeback_batch_size", "-1", "EINVAL", "EINVAL"),
    case("compressed_writeback", "1", "ok", "EBUSY"),
    case("compressed_writeback", "foo", "EINVAL", "EINVAL"),
    case("resize", "foo", "EINVAL", "EINVAL"),
    case("resize", "2M", "-", "ok"),
    case("resize", "0", "EINVAL", "EINVAL"),
    case("switch_algorithm", "algo=nosuch", "EINVAL", "EINVAL"),
    case("switch_algorithm", "foo", "EINVAL", "EINVAL"),
    case("switch_algorithm", "algo=zstd level=5", "ok", "ok"),
    case("switch_algorithm", "algo=zstd level=999", "EINVAL", "EINVAL"),
    case("switch_algorithm", "priority=4 algo=lz4", "EINVAL", "EINVAL"),
    case("track_access", "foo", "EINVAL", "EINVAL"),
    case("track_access", "0", "ok", "EBUSY"),
    case("class/zram-control/hot_remove", "\n", "EINVAL", "EINVAL"),
    case("class/zram-control/hot_remove", "foo", "EINVAL", "EINVAL"),
    case("class/zram-control/hot_remove", "-1", "EINVAL", "EINVAL"),
    case("class/zram-control/hot_remove", " 7077", "EINVAL", "EINVAL"),
    case("class/zram-control/hot_remove", "7077x", "EINVAL", "EINVAL"),
    case("class/zram-control/hot_remove", "0x1ba5", "EINVAL", "EINVAL"),
    case("class/zram-control/hot_remove", "99999999999", "ERANGE", "ERANGE"),
    case("class/zram-control/hot_remove", "7077", "ENODEV", "ENODEV"),
    case("class/zram-control/hot_remove", "+7077\n", "ENODEV", "ENODEV"),
    case("class/zram-control/hot_remove", "@a4096", "EINVAL", "EINVAL"),
];
