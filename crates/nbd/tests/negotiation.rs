//! Option haggling, byte by byte.

mod common;

use std::sync::Arc;

use block::{BlockDevice, Geometry};
use common::*;
use nbd::{ExportInfo, Exports, OpenError};

/// Transmission flags of a writable device without structured replies: has-flags, flush, FUA,
/// trim, write-zeroes, multi-conn, cache, fast-zero.
const FLAGS: u16 = 1 | 4 | 8 | 32 | 64 | 256 | 1024 | 2048;
const SEND_DF: u16 = 128;

fn export_info(bytes: u64, flags: u16) -> Vec<u8> {
    [&[0, 0][..], &bytes.to_be_bytes(), &flags.to_be_bytes()].concat()
}

#[test]
fn export_name_without_zeroes() {
    let mut client = Client::negotiating(plain(5000));
    client.option(OPT_EXPORT_NAME, b"disk");
    assert_eq!(client.take(10), [&5000u64.to_be_bytes()[..], &FLAGS.to_be_bytes()].concat());
    assert_eq!(client.read(0, 3), Ok(vec![0; 3]));
}

#[test]
fn export_name_with_zeroes_and_without_fixed_newstyle() {
    for flags in [0, 1] {
        let mut client = Client::new(Arc::new(nbd::One::new("disk", "", plain(5000))));
        client.greet(flags);
        client.option(OPT_EXPORT_NAME, b"");
        assert_eq!(client.take(8), 5000u64.to_be_bytes());
        assert_eq!(client.take(2), FLAGS.to_be_bytes());
        assert_eq!(client.take(124), [0; 124]);
        assert_eq!(client.read(0, 3), Ok(vec![0; 3]));
    }
}

#[test]
fn export_name_that_does_not_exist_ends_the_session() {
    let long = vec![b'x'; 70_000];
    for name in [b"nothing".as_slice(), &[0xff, 0xfe], &long[..5000], &long] {
        let mut client = Client::negotiating(plain(5000));
        client.option(OPT_EXPORT_NAME, name);
        client.expect_end();
    }
}

#[test]
fn unknown_client_flags_end_the_session() {
    for flags in [4, 0x8000_0000, 7] {
        let mut client = Client::new(Arc::new(nbd::One::new("disk", "", plain(5000))));
        client.greet(flags);
        client.expect_end();
    }
}

#[test]
fn abort_is_acknowledged() {
    let mut client = Client::negotiating(plain(5000));
    let reply = client.ask(OPT_ABORT, &[]);
    assert_eq!((reply.kind, &reply.data[..]), (ACK, &[][..]));
    client.expect_end();
}

#[test]
fn list_names_and_describes() {
    let mut client = Client::negotiating(plain(5000));
    let reply = client.ask(OPT_LIST, &[]);
    assert_eq!((reply.kind, &reply.data[..]), (REP_SERVER, &b"\0\0\0\x04diska disk"[..]));
    assert_eq!(client.reply().kind, ACK);
    assert_eq!(client.ask(OPT_LIST, b"x").kind, ERR_INVALID);
    client.begin(Style::Simple);
}

#[test]
fn go_tells_the_export_and_begins() {
    let mut client = Client::negotiating(plain(5000));
    let reply = client.ask(OPT_GO, &info_data("disk", &[]));
    assert_eq!((reply.kind, reply.data), (REP_INFO, export_info(5000, FLAGS)));
    assert_eq!(client.reply(), Reply { option: OPT_GO, kind: ACK, data: vec![] });
    assert_eq!(client.read(4999, 1), Ok(vec![0]));
}

#[test]
fn info_tells_all_that_is_asked_and_goes_on_haggling() {
    let mut client = Client::negotiating(plain(5000));
    assert_eq!(client.ask(OPT_STRUCTURED, &[]).kind, ACK);
    let first = client.ask(OPT_INFO, &info_data("", &[3, 1, 2, 77]));
    assert_eq!(first.data, export_info(5000, FLAGS | SEND_DF));
    assert_eq!(client.reply().data, b"\0\x01disk");
    assert_eq!(client.reply().data, b"\0\x02a disk");
    let sizes = [0, 3, 0, 0, 0, 1, 0, 0, 0x10, 0, 0x02, 0, 0, 0];
    assert_eq!(client.reply().data, sizes);
    assert_eq!(client.reply().kind, ACK);
    client.begin(Style::Simple);
}

#[test]
fn a_device_with_blocks_says_so_unasked() {
    let mut odd = Odd::new(8192);
    odd.geometry = Geometry { bytes: 8192, minimum_block: 512, preferred_block: 0 };
    let mut client = Client::negotiating(Arc::new(odd));
    client.option(OPT_INFO, &info_data("", &[]));
    assert_eq!(client.reply().kind, REP_INFO);
    let sizes = [0, 3, 0, 0, 2, 0, 0, 0, 2, 0, 0x02, 0, 0, 0];
    assert_eq!(client.reply().data, sizes);
    assert_eq!(client.reply().kind, ACK);
}

#[test]
fn abilities_show_in_the_flags() {
    let flags = |change: fn(&mut Odd)| {
        let mut odd = Odd::new(8192);
        change(&mut odd);
        let mut client = Client::negotiating(Arc::new(odd));
        let data = client.ask(OPT_INFO, &info_data("", &[])).data;
        u16::from_be_bytes([data[10], data[11]])
    };
    assert_eq!(flags(|_| {}), FLAGS);
    assert_eq!(flags(|odd| odd.abilities.discard = false), FLAGS & !32);
    // Read-only, without trim, write-zeroes and fast-zero.
    assert_eq!(flags(|odd| odd.abilities.read_only = true), (FLAGS | 2) & !(32 | 64 | 2048));
}

#[test]
fn unknown_exports_are_told() {
    let mut client = Client::negotiating(plain(5000));
    for option in [OPT_INFO, OPT_GO] {
        let reply = client.ask(option, &info_data("nothing", &[]));
        assert_eq!(reply.kind, ERR_UNKNOWN);
        assert_eq!(reply.data, b"no export has this name");
    }
    client.begin(Style::Simple);
}

#[test]
fn options_that_do_not_parse_are_refused_and_passed_over() {
    let mut client = Client::negotiating(plain(5000));
    let mut long_name = info_data(&"x".repeat(4097), &[]);
    for data in [
        &b""[..],
        b"\0\0\0",
        b"\0\0\0\0",
        b"\0\0\0\x05disk",
        b"\0\0\0\x04disk\0",
        b"\0\0\0\x04disk\0\x01",
        b"\0\0\0\x04disk\0\x01\0",
        b"\0\0\0\x04disk\0\0x",
        b"\xff\xff\xff\xffdisk\0\0",
        b"\0\0\0\x01\xff\0\0",
        &long_name,
    ] {
        for option in [OPT_INFO, OPT_GO] {
            let reply = client.ask(option, data);
            assert_eq!(reply.kind, ERR_INVALID, "{data:?}");
            assert!(!reply.data.is_empty(), "it says why");
        }
    }
    assert_eq!(client.ask(OPT_STRUCTURED, b"x").kind, ERR_INVALID);
    assert_eq!(client.ask(OPT_STRUCTURED, &[]).kind, ACK);
    long_name.truncate(0);
    for data in [
        &long_name[..],
        b"\0\0\0\x04disk",
        b"\0\0\0\x04disk\0\0\0\x01",
        b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x02b",
        b"\0\0\0\x04disk\xff\xff\xff\xff\0\0\0\0",
        b"\0\0\0\x04disk\0\0\0\0x",
        b"\0\0\0\x09disk\0\0\0\0",
    ] {
        for option in [OPT_LIST_META, OPT_SET_META] {
            assert_eq!(client.ask(option, data).kind, ERR_INVALID, "{data:?}");
        }
    }
    client.begin(Style::Allocation);
}

#[test]
fn unknown_options_are_refused_and_resynchronised() {
    let mut client = Client::negotiating(plain(5000));
    for option in [0, OPT_STARTTLS, OPT_EXTENDED, 4, 99, u32::MAX] {
        for data in [&b""[..], b"IHAVEOPT\0\0\0\x03\0\0\0\0", &[0x55; 65_536], &[0x55; 65_537]] {
            assert_eq!(client.ask(option, data).kind, ERR_UNSUP);
        }
    }
    client.begin(Style::Allocation);
}

#[test]
fn oversize_options_are_drained_and_refused() {
    let mut client = Client::negotiating(plain(5000));
    for option in [OPT_LIST, OPT_INFO, OPT_GO, OPT_STRUCTURED, OPT_LIST_META, OPT_SET_META] {
        let reply = client.ask(option, &vec![0; 65_537]);
        assert_eq!(reply.kind, ERR_TOO_BIG, "{option}");
        assert!(String::from_utf8(reply.data).unwrap().contains("65536"));
    }
    assert_eq!(client.ask(OPT_GO, &vec![0; 16 << 20]).kind, ERR_TOO_BIG);
    client.begin(Style::Simple);
}

#[test]
fn unreasonable_options_end_the_session() {
    for option in [OPT_GO, 99] {
        let mut client = Client::negotiating(plain(5000));
        let length = (16u32 << 20) + 1;
        client.send(&[b"IHAVEOPT", &option.to_be_bytes()[..], &length.to_be_bytes()].concat());
        client.expect_end();
    }
    // So does haggling without end.
    for data in [&[][..], &[0; (64 << 10) + 1]] {
        let mut client = Client::negotiating(plain(5000));
        for _ in 0..1024 {
            assert_eq!(client.ask(99, data).kind, ERR_UNSUP);
        }
        // The header is enough.
        client.send(&option_bytes(99, data)[..16]);
        client.expect_end();
    }
}

#[test]
fn a_wrong_magic_number_ends_the_session() {
    let mut client = Client::negotiating(plain(5000));
    // Eight bytes are enough to see it.
    client.send(b"IHAVEOPS");
    client.expect_end();
}

#[test]
fn contexts_are_listed_and_set() {
    let mut client = Client::negotiating(plain(5000));
    for option in [OPT_LIST_META, OPT_SET_META] {
        let reply = client.ask(option, &meta_data("disk", &["base:allocation"]));
        assert_eq!(reply.kind, ERR_INVALID, "structured replies come first");
    }
    assert_eq!(client.ask(OPT_STRUCTURED, &[]).kind, ACK);
    let mut contexts = |option, name, queries: &[&str]| {
        client.option(option, &meta_data(name, queries));
        let mut found = vec![];
        loop {
            let reply = client.reply();
            if reply.kind != REP_META {
                assert!(reply.kind == ACK || found.is_empty());
                return (reply.kind, found);
            }
            found
                .push((be32(&reply.data, 0), String::from_utf8(reply.data[4..].to_vec()).unwrap()));
        }
    };
    let one = |id| (ACK, vec![(id, "base:allocation".to_string())]);
    let none = (ACK, vec![]);
    let (list, set) = (OPT_LIST_META, OPT_SET_META);
    assert_eq!(contexts(list, "disk", &[]), one(0));
    assert_eq!(contexts(list, "", &["base:"]), one(0));
    assert_eq!(contexts(list, "disk", &["x:y", "base:allocation", "base:"]), one(0));
    assert_eq!(contexts(list, "disk", &["qemu:"]), none);
    assert_eq!(contexts(list, "nothing", &[]), (ERR_UNKNOWN, vec![]));
    assert_eq!(contexts(set, "disk", &[]), none);
    assert_eq!(contexts(set, "disk", &["base:"]), none);
    assert_eq!(contexts(set, "nothing", &["base:allocation"]), (ERR_UNKNOWN, vec![]));
    assert_eq!(contexts(set, "disk", &["x:y", "base:allocation"]), one(1));
}

#[test]
fn a_failed_set_takes_the_context_back() {
    let mut client = Client::negotiating(plain(8192));
    assert_eq!(client.ask(OPT_STRUCTURED, &[]).kind, ACK);
    client.option(OPT_SET_META, &meta_data("disk", &["base:allocation"]));
    assert_eq!((client.reply().kind, client.reply().kind), (REP_META, ACK));
    assert_eq!(client.ask(OPT_SET_META, b"junk").kind, ERR_INVALID);
    client.begin(Style::Simple);
    assert_eq!(client.status(0, 0, 4096), Err(EINVAL));
}

/// Two exports, one that refuses and one that is going away.
struct Several;

impl Exports for Several {
    fn list(&self) -> Vec<ExportInfo> {
        let info = |name: &str| ExportInfo { name: name.into(), description: String::new() };
        vec![info("zram0"), info("zram1"), info("busy"), info("late")]
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>, OpenError> {
        match name {
            "zram0" => Ok(plain(1000)),
            "zram1" => Ok(plain(2000)),
            "hidden" => Ok(plain(3000)),
            "busy" => Err(OpenError::Refused("zram2 has no size yet; set disksize".into())),
            "late" => Err(OpenError::ShuttingDown),
            _ => Err(OpenError::Unknown),
        }
    }
}

#[test]
fn exports_are_told_apart() {
    let mut client = Client::new(Arc::new(Several));
    client.greet(3);
    client.option(OPT_LIST, &[]);
    for name in ["zram0", "zram1", "busy", "late"] {
        assert_eq!(client.reply().data, counted(name));
    }
    assert_eq!(client.reply().kind, ACK);
    for (name, bytes) in [("", 1000), ("zram0", 1000), ("zram1", 2000), ("hidden", 3000)] {
        let reply = client.ask(OPT_INFO, &info_data(name, &[]));
        assert_eq!(be64(&reply.data, 2), bytes);
        assert_eq!(client.reply().kind, ACK);
    }
    let refused = client.ask(OPT_GO, &info_data("busy", &[]));
    assert_eq!(refused.kind, ERR_POLICY);
    assert_eq!(refused.data, b"zram2 has no size yet; set disksize");
    assert_eq!(client.ask(OPT_GO, &info_data("late", &[])).kind, ERR_SHUTDOWN);

    // A context chosen for one export is not there on another.
    assert_eq!(client.ask(OPT_STRUCTURED, &[]).kind, ACK);
    client.option(OPT_SET_META, &meta_data("zram0", &["base:allocation"]));
    assert_eq!((client.reply().kind, client.reply().kind), (REP_META, ACK));
    client.option(OPT_GO, &info_data("zram1", &[]));
    assert_eq!((client.reply().kind, client.reply().kind), (REP_INFO, ACK));
    assert_eq!(client.status(0, 0, 1000), Err(EINVAL));

    // One chosen for the default export is there under its name.
    let mut second = Client::of(client.server.clone());
    let client = &mut second;
    client.greet(3);
    assert_eq!(client.ask(OPT_STRUCTURED, &[]).kind, ACK);
    client.option(OPT_SET_META, &meta_data("", &["base:allocation"]));
    assert_eq!((client.reply().kind, client.reply().kind), (REP_META, ACK));
    client.option(OPT_GO, &info_data("zram0", &[]));
    assert_eq!((client.reply().kind, client.reply().kind), (REP_INFO, ACK));
    assert_eq!(client.status(0, 0, 1000), Ok(vec![(1000, 3)]));
}
