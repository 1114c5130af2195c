use crate::*;
use alloc::string::ToString;

#[test]
fn sizes_as_the_kernel_writes_them() {
    for (text, bytes) in [
        ("0", 0),
        ("1", 1),
        ("4096", 4096),
        ("256K", 256 << 10),
        ("512M", 512 << 20),
        ("1g", 1 << 30),
        ("3T", 3 << 40),
        ("2P", 2 << 50),
        ("15E", 15 << 60),
        ("0x1000", 4096),
        ("0x1E", 30),
        ("010", 8),
        (" 1G\n", 1 << 30),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(parse_size(text), Ok(bytes), "{text:?}");
    }
}

#[test]
fn bad_sizes_say_what_is_wrong() {
    for (text, expected) in [
        ("", "a size is missing"),
        ("  ", "a size is missing"),
        ("foo", "\"foo\" is not a size;"),
        ("-1", "\"-1\" is not a size;"),
        ("1Gfoo", "\"foo\" follows the number"),
        ("10X", "\"X\" follows the number"),
        ("1KB", "\"B\" follows the number"),
        ("1.5G", "\".5G\" follows the number"),
        ("1 G", "\" G\" follows the number"),
        ("16E", "too large"),
        ("18446744073709551616", "too large"),
        ("0x", "\"x\" follows the number"),
        ("é", "is not a size"),
    ] {
        let error = parse_size(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}

#[test]
fn sizes_as_zramctl_prints_them() {
    for (bytes, text) in [
        (0, "0B"),
        (1, "1B"),
        (1023, "1023B"),
        (1024, "1K"),
        (1536, "1.5K"),
        (4096, "4K"),
        ((1 << 20) - 1, "1M"),
        (1 << 30, "1G"),
        (u64::MAX, "16E"),
    ] {
        assert_eq!(human(bytes).to_string(), text);
    }
    assert_eq!(alloc::format!("{:>6}", human(1 << 20)), "    1M");
}

#[test]
fn cpus_wrap() {
    assert_eq!(Cpu(5).index(2), 1);
}

#[test]
fn expressions_are_evaluated() {
    const RAM: u64 = 6 << 30;
    for (text, bytes) in [
        ("ram", RAM),
        ("ram / 2", 3 << 30),
        ("min(ram / 2, 8G)", 3 << 30),
        ("max( ram/2 , 8G, 1k )", 8 << 30),
        ("50%", 3 << 30),
        ("0.5 * ram", 3 << 30),
        ("min(50%, 1G) + 1M", (1 << 30) + (1 << 20)),
        ("2 + 3 * 4 - 1", 13),
        ("(2 + 3) * 4", 20),
        ("10 - 3 - 2", 5),
        ("1.5G*1", 3 << 29),
        ("7 / 2", 3),
        // As without an expression.
        ("0x1E", 30),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(evaluate_size(text, || RAM), Ok(bytes), "{text:?}");
    }
    let asks_nothing = || panic!("there is no ram in it");
    assert_eq!(evaluate_size("1G + 1", asks_nothing), Ok((1 << 30) + 1));
}

#[test]
fn bad_expressions_say_what_is_wrong() {
    let deep = alloc::format!("{}1{}", "(".repeat(33), ")".repeat(33));
    for (text, expected) in [
        ("plenty", "\"plenty\" is not a size; write a number of bytes"),
        ("-1", "\"-1\" is not a size; write a number of bytes"),
        ("ram /", "a number, ram, min or max is missing at its end"),
        ("min(ram, 8G", "')' is missing at its end"),
        ("min(ram, 8Gb)", "missing before \"8Gb)\""),
        ("ram ram", "\"ram\" is too much"),
        ("ram - 8G", "is less than 0"),
        ("ram / 0", "divides by 0"),
        ("16E + ram", "more than 18446744073709551615"),
        ("half(ram)", "missing before \"half(ram)\""),
        (&deep, "more than 32 deep"),
    ] {
        let error = evaluate_size(text, || 1 << 30).expect_err(text).to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
    let error = evaluate_size("10%", || 0).unwrap_err().to_string();
    assert!(error.contains("cannot be read"), "{error}");
}
