use std::ffi::OsStr;

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
    for name in service::engine::ALGORITHMS {
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
    let set = |assignments: &[&str]| {
        let assignments = assignments.iter().map(Into::into).collect();
        let set = Set { name: "zram0".into(), assignments }.attributes();
        set.map(|set| set.into_iter().map(|it| (it.name, it.value)).collect::<Vec<_>>())
    };
    let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
    assert_eq!(set(&["disksize", "1G"]), Ok(vec![pair("disksize", "1G")]));
    assert_eq!(set(&["a=1", "b=x=y"]), Ok(vec![pair("a", "1"), pair("b", "x=y")]));
    assert_eq!(set(&["a="]), Ok(vec![pair("a", "")]));
    assert!(set(&["disksize"]).is_err());
    assert!(set(&["a=1", "b"]).is_err());
    assert!(set(&["a", "b", "c"]).is_err());
    assert!(set(&["=1"]).is_err());
}

#[test]
fn relative_paths_are_in_the_directory_of_the_client() {
    let here = std::env::current_dir().unwrap();
    let of = |assignments: &[&[u8]]| {
        let words = assignments.iter().map(|it| OsStr::from_bytes(it).to_owned()).collect();
        let set = Set { name: "zram0".into(), assignments: words }.attributes().unwrap();
        machine::path_of(&set[0].value)
    };
    for name in ["some file", "../up"] {
        assert_eq!(of(&[b"backing_dev", name.as_bytes()]), here.join(name));
        assert_eq!(of(&[format!("backing_dev={name}").as_bytes()]), here.join(name));
    }
    let bytes = b"backing_dev=\xff\xfe";
    assert_eq!(of(&[bytes]), here.join(OsStr::from_bytes(b"\xff\xfe")));
    let dictionary = format!("dict=\"{}/d\" level=3", here.display());
    let dictionary = match here.to_str().unwrap().contains(' ') {
        true => dictionary,
        false => dictionary.replace('"', ""),
    };
    assert_eq!(of(&[b"algorithm_params=dict=d level=3"]), PathBuf::from(dictionary));
    let line = "rampack add --set backing_dev=f --set mem_limit=1M".split(' ');
    let Command::Add(add) = Cli::try_parse_from(line).unwrap().command else { panic!() };
    assert_eq!(add.device.set[0].value, here.join("f").to_str().unwrap());
}

#[test]
fn negative_levels_are_values() {
    let cli = Cli::try_parse_from(["rampack", "up", "--level", "-5"]).unwrap();
    let Command::Up(up) = cli.command else { panic!("{cli:?}") };
    assert_eq!(up.disk.device.level, Some(-5));
}

#[test]
fn options_go_by_their_names_of_before() {
    let parsed = |line: &str| Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.command);
    let on = |line: &str| match parsed(&format!("rampack swap on --size 1G {line}")).unwrap() {
        Command::Swap(Swap { action: SwapAction::On(on) }) => on.request(),
        other => panic!("{other:?}"),
    };
    let now = "--memory 1M --algorithm zstd --transport fuse --auto=off";
    let before = "--max-pool 1M --compressor zstd --transport loop --no-auto";
    assert_eq!(format!("{:?}", on(now)), format!("{:?}", on(before)));
    assert_eq!(
        (on("--auto").auto, on("--auto=on").auto, on("").auto),
        (Some(true), Some(true), None)
    );
    let up = |line: &str| match parsed(&format!("rampack up {line}")).unwrap() {
        Command::Up(up) => (up.disk.device.memory.map(|size| size.bytes), up.disk.device.auto),
        other => panic!("{other:?}"),
    };
    assert_eq!(up("--mem-limit 1M --auto"), up("--memory 1M --auto=on"));
    assert_eq!(up("--auto=off"), (None, Some(false)));
    for wrong in ["up --auto=perhaps", "up --transport loop", "swap on --size 1G --transport nbd"] {
        assert!(parsed(&format!("rampack {wrong}")).is_err(), "{wrong}");
    }
}
