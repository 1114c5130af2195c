use clap::CommandFactory;
use clap::error::ErrorKind;

use super::values::tcp_address;
use super::*;

fn refused(line: &str) -> String {
    let error = Cli::try_parse_from(line.split(' ')).expect_err(line);
    assert!(
        matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue),
        "{error}"
    );
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn a_size_of_zero_is_refused() {
    let text = refused("rampack up --size 0");
    assert!(text.contains("cannot be of size 0") && text.contains("EINVAL"), "{text}");
}

#[test]
fn a_size_beyond_all_bounds_is_refused() {
    let text = refused("rampack up --size 16E");
    assert!(text.contains("too large") && text.contains("18446744073709551615"), "{text}");
}

#[test]
fn a_size_that_is_none_is_refused() {
    let text = refused("rampack up --size plenty");
    assert!(text.contains("\"plenty\"") && text.contains("K M G T P E"), "{text}");
}

#[test]
fn junk_after_the_suffix_is_refused() {
    let text = refused("rampack up --size 1Gfoo");
    assert!(text.contains("\"foo\" follows the number"), "{text}");
}

#[test]
fn an_unknown_algorithm_is_told_the_known_ones() {
    let text = refused("rampack up --algorithm lzma");
    for name in crate::machine::ALGORITHMS {
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn the_design_of_a_seam_is_not_a_users_choice() {
    for option in ["--slots cas", "--streams multi", "--zone spin", "--index rbtree"] {
        for command in ["up", "serve", "swap on --size 1M"] {
            let line = format!("rampack {command} {option}");
            let error = Cli::try_parse_from(line.split(' ')).expect_err(&line);
            assert_eq!(error.kind(), ErrorKind::UnknownArgument, "{line}");
        }
    }
}

#[test]
fn an_unknown_file_system_is_refused() {
    assert!(refused("rampack up --fs ext5").contains("ext4"));
}

#[test]
fn a_port_alone_is_on_loopback() {
    assert_eq!(tcp_address("10809").unwrap().to_string(), "127.0.0.1:10809");
    assert_eq!(tcp_address(":1").unwrap().to_string(), "127.0.0.1:1");
    assert_eq!(tcp_address("0.0.0.0:1").unwrap().to_string(), "0.0.0.0:1");
    assert_eq!(tcp_address("[::1]:9").unwrap().to_string(), "[::1]:9");
    for text in ["::1:5", "::1", "1:2:3"] {
        let text = refused(&format!("rampack up --nbd-tcp {text}"));
        assert!(text.contains("brackets") && text.contains("[IPV6]:PORT"), "{text}");
    }
    assert!(refused("rampack up --nbd-tcp 99999").contains("65535"));
    assert!(refused("rampack up --nbd-tcp nowhere").contains("HOST:PORT"));
}

#[test]
fn attributes_are_set_in_two_ways() {
    let pairs = |assignments: &[&str]| {
        let assignments = assignments.iter().map(ToString::to_string).collect();
        Set { name: "zram0".into(), assignments }.pairs()
    };
    let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
    assert_eq!(pairs(&["disksize", "1G"]), Ok(vec![pair("disksize", "1G")]));
    assert_eq!(pairs(&["a=1", "b=x=y"]), Ok(vec![pair("a", "1"), pair("b", "x=y")]));
    assert_eq!(pairs(&["a="]), Ok(vec![pair("a", "")]));
    assert!(pairs(&["disksize"]).is_err());
    assert!(pairs(&["a=1", "b"]).is_err());
    assert!(pairs(&["a", "b", "c"]).is_err());
    assert!(pairs(&["=1"]).is_err());
}

#[test]
fn negative_levels_are_values() {
    let cli = Cli::try_parse_from(["rampack", "up", "--level", "-5"]).unwrap();
    let Command::Up(up) = cli.command else { panic!("{cli:?}") };
    assert_eq!(up.device.level, Some(-5));
}
