use std::sync::Arc;

use block::{BlockDevice, IoError, Plain};

use crate::errors::on_the_wire;
use crate::wire::cmd;
use crate::wire::*;

#[test]
fn request_headers_by_the_byte() {
    let bytes = [
        0x25, 0x60, 0x95, 0x13, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0,
        0x10, 0, 0xff,
    ];
    let request = Request {
        flags: 1,
        command: 6,
        cookie: 0x0102_0304_0506_0708,
        offset: 65_536,
        length: 4096,
    };
    assert_eq!(parse_request(&bytes), Ok(Some(request)));
    for end in 0..REQUEST_HEADER {
        assert_eq!(parse_request(&bytes[..end]), Ok(None));
    }
    let mut wrong = bytes;
    wrong[3] = 0x14;
    for end in 4..=bytes.len() {
        assert_eq!(parse_request(&wrong[..end]), Err(Malformed::Magic));
    }
}

#[test]
fn option_headers_by_the_byte() {
    let bytes = *b"IHAVEOPT\0\0\0\x07\0\0\x01\0rest";
    let header = OptionHeader { option: 7, length: 256 };
    assert_eq!(parse_option_header(&bytes), Ok(Some(header)));
    for end in 0..OPTION_HEADER {
        assert_eq!(parse_option_header(&bytes[..end]), Ok(None));
    }
    assert_eq!(parse_option_header(b"IHAVEOPS"), Err(Malformed::Magic));
}

#[test]
fn info_queries() {
    let query = parse_info_query(b"\0\0\0\x04disk\0\x02\0\x01\0\x03").unwrap();
    assert_eq!(query.name, "disk");
    assert_eq!([0, 1, 2, 3, 256].map(|kind| query.wants(kind)), [false, true, false, true, false]);
    assert_eq!(parse_info_query(b"\0\0\0\0\0\x01\0"), Err(Malformed::Short));
    assert_eq!(parse_info_query(b"\0\0\0\0\0\0\0"), Err(Malformed::Long));
    assert_eq!(parse_info_query(b"\xff\xff\xff\xff"), Err(Malformed::Short));
}

#[test]
fn meta_queries() {
    let query = parse_meta_query(b"\0\0\0\0\0\0\0\x02\0\0\0\x01a\0\0\0\0").unwrap();
    assert_eq!(query.queries().collect::<Vec<_>>(), [&b"a"[..], b""]);
    assert_eq!(parse_meta_query(b"\0\0\0\0\xff\xff\xff\xff"), Err(Malformed::Short));
    assert_eq!(parse_meta_query(b"\0\0\0\0\0\0\0\0\0"), Err(Malformed::Long));
}

#[test]
fn names() {
    assert_eq!(parse_name("zram0 ü".as_bytes()), Ok("zram0 ü"));
    assert_eq!(parse_name(&[0xc3]), Err(Malformed::Text));
    assert_eq!(parse_name(&[b'x'; 4096]).map(str::len), Ok(4096));
    assert_eq!(parse_name(&[b'x'; 4097]), Err(Malformed::Name));
}

#[test]
fn every_error_has_a_number_of_the_protocol() {
    use IoError::*;
    let all = [
        (OutOfRange, 22, 28),
        (Unaligned, 22, 22),
        (NotReady, 5, 5),
        (ReadOnly, 1, 1),
        (NoSpace, 28, 28),
        (NoMemory, 12, 12),
        (Corrupt, 5, 5),
        (Unsupported, 95, 95),
        (Failed, 5, 5),
    ];
    for (error, other, write) in all {
        assert_eq!((on_the_wire(cmd::READ, error), on_the_wire(cmd::WRITE, error)), (other, write));
    }
}

#[test]
fn a_connection_in_memory() {
    let device: Arc<dyn BlockDevice> = Arc::new(Plain::new(4096));
    assert_eq!(crate::drive(b"", device.clone()), b"NBDMAGICIHAVEOPT\0\x03");
    let mut input = b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0".to_vec();
    let begun = crate::drive(&input, device.clone());
    assert_eq!(begun[18..26], 4096u64.to_be_bytes());
    input.extend(b"\x25\x60\x95\x13\0\0\0\0--cookie\0\0\0\0\0\0\0\0\0\0\0\x02");
    let read = crate::drive(&input, device);
    assert_eq!(read[begun.len()..], *b"\x67\x44\x66\x98\0\0\0\0--cookie\0\0");
}
