//! The list of targets. Each target says what must hold for any input, besides the absence of
//! panics.

use std::sync::Arc;

use block::{BlockDevice, Checked, Plain};
use nbd::wire;
use service::protocol::{self, DaemonReport};

use crate::fuse_client::{self, fuse_requests};
use crate::kept_table;
use crate::nbd_client::{self, Conversation};
use crate::{
    codecs, disk_targets, fuse_files, plain_blocks, put_off, remote_stores, segment_walk,
    snapshots, swap_contents, value_store, vhost_chains,
};

/// A target function, its name, and its seed inputs.
pub struct Target {
    /// The name of the function, and of the program under `fuzz/`.
    pub name: &'static str,
    /// The function. It panics when the input finds a fault.
    pub run: fn(&[u8]),
    /// Well-formed inputs for mutation.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "nbd_negotiation", run: nbd_negotiation, seeds: nbd_client::negotiation_seeds },
    Target { name: "nbd_requests", run: nbd_requests, seeds: nbd_client::request_seeds },
    Target { name: "nbd_put_off", run: put_off::nbd_put_off, seeds: put_off::seeds },
    Target { name: "vhost_chains", run: vhost_chains::vhost_chains, seeds: vhost_chains::seeds },
    Target { name: "fuse_requests", run: fuse_requests, seeds: fuse_client::seeds },
    Target { name: "fuse_files", run: fuse_files::fuse_files, seeds: fuse_files::seeds },
    Target { name: "plain_blocks", run: plain_blocks::plain_blocks, seeds: plain_blocks::seeds },
    Target {
        name: "swap_contents",
        run: swap_contents::swap_contents,
        seeds: swap_contents::seeds,
    },
    Target {
        name: "attribute_stores",
        run: disk_targets::attribute_stores,
        seeds: disk_targets::store_seeds,
    },
    Target {
        name: "sealed_blocks",
        run: disk_targets::sealed_blocks,
        seeds: disk_targets::block_seeds,
    },
    Target { name: "parse_size", run: parse_size, seeds: size_seeds },
    Target { name: "control_message", run: control_message, seeds: message_seeds },
    Target { name: "kept_table", run: kept_table::kept_table, seeds: kept_table::seeds },
    Target {
        name: "remote_stores",
        run: remote_stores::remote_stores,
        seeds: remote_stores::seeds,
    },
    Target { name: "segment_walk", run: segment_walk::segment_walk, seeds: segment_walk::seeds },
    Target { name: "value_store", run: value_store::value_store, seeds: value_store::seeds },
    Target { name: "snapshots", run: snapshots::snapshots, seeds: snapshots::seeds },
    Target { name: "decompress", run: codecs::decompress, seeds: codecs::seeds },
    Target { name: "decompress_lzo", run: codecs::decompress_lzo, seeds: codecs::lzo_seeds },
    Target { name: "decompress_lz4", run: codecs::decompress_lz4, seeds: codecs::lz4_seeds },
    Target { name: "decompress_zstd", run: codecs::decompress_zstd, seeds: codecs::zstd_seeds },
    Target { name: "pack_pages", run: codecs::pack_pages, seeds: codecs::seeds },
    Target {
        name: "decompress_deflate",
        run: codecs::decompress_deflate,
        seeds: codecs::deflate_seeds,
    },
    Target { name: "decompress_842", run: codecs::decompress_842, seeds: codecs::seeds_842 },
];

/// The device behind the NBD targets: large enough for holes and data, small enough to be fast.
fn device() -> Arc<dyn BlockDevice> {
    Arc::new(Checked::new(Plain::new(nbd_client::DEVICE_BYTES)))
}

/// The bytes of an NBD client from the first byte on.
///
/// The server must greet, and every reply to an option must be whole.
pub fn nbd_negotiation(input: &[u8]) {
    let output = nbd::drive(input, device());
    nbd_client::check_negotiation(&output);

    let _ = wire::parse_option_header(input);
    let _ = wire::parse_request(input);
    let _ = wire::parse_client_flags(input);
    let _ = wire::parse_name(input);
    let _ = wire::parse_info_query(input);
    if let Ok(query) = wire::parse_meta_query(input) {
        assert!(query.name.len() <= input.len());
        let bytes: usize = query.queries().map(<[u8]>::len).sum();
        assert!(bytes <= input.len(), "more bytes in the queries than were sent");
    }
}

/// The bytes of an NBD client after a good negotiation.
///
/// If the first bit of the input is clear, the rest goes out raw. Otherwise the rest describes a
/// list of well-framed requests with any flags and ranges, and the server must answer each exactly
/// once.
pub fn nbd_requests(input: &[u8]) {
    let conversation = Conversation::from_fuzz(input);
    let output = nbd::drive(&conversation.bytes, device());
    if let Err(fault) = conversation.check(&output) {
        panic!("{fault}; requests: {:?}", conversation.requests);
    }
}

/// A size as an administrator types it.
///
/// An accepted size must print as the same number, and must be refused with junk behind it. As an
/// expression it is the same, and an accepted expression is so in parentheses too.
pub fn parse_size(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match units::parse_size(text) {
        Ok(bytes) => {
            assert_eq!(units::parse_size(&bytes.to_string()), Ok(bytes), "{text:?}");
            let junk = format!("{}z", text.trim_end());
            assert!(units::parse_size(&junk).is_err(), "{junk:?} is accepted");
            assert!(!units::human(bytes).to_string().is_empty());
            assert_eq!(units::evaluate_size(text, || 0), Ok(bytes), "{text:?}");
        }
        Err(error) => match units::evaluate_size(text, || 6 << 30) {
            Ok(bytes) => {
                let again = format!("({text})");
                assert_eq!(units::evaluate_size(&again, || 6 << 30), Ok(bytes), "{again:?}");
            }
            Err(refused) => {
                assert!(!error.to_string().is_empty() && !refused.to_string().is_empty())
            }
        },
    }
}

/// A line on the control socket, and an answer to the client.
///
/// An accepted request must be the same request after it is written and read again. A refusal must
/// give an answer of one line.
pub fn control_message(input: &[u8]) {
    match protocol::parse_message(input) {
        Ok(request) => {
            let line = protocol::request_line(&request);
            let again = protocol::parse_message(line.as_bytes());
            assert_eq!(again.as_ref().ok(), Some(&request), "{line}: {again:?}");
        }
        Err(fault) => {
            assert!(!fault.message.is_empty());
            let line = protocol::reply_line(&Err(fault));
            assert_eq!(line.matches('\n').count(), 1, "{line:?}");
            assert!(line.ends_with('\n') && line.len() <= protocol::LINE_MAX, "{line:?}");
            assert!(protocol::parse_reply::<DaemonReport>(line.as_bytes()).is_err());
        }
    }
    let _ = protocol::parse_reply::<DaemonReport>(input);
}

fn size_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "0",
        "1",
        "4096",
        "512M",
        "1g",
        "0x1000",
        "0x1E",
        "0755",
        "16E",
        "17E",
        " 1T\n",
        "1GiB",
        "-1",
        "1.5G",
        "18446744073709551615",
        "18446744073709551616",
        "K",
        "0x",
        "min(ram / 2, 8G)",
        "30% + 1.5M * (2 - 1)",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn message_seeds() -> Vec<Vec<u8>> {
    let texts = [
        r#"{"version":1,"command":"status"}"#,
        r#"{"version":1,"command":"add","size":"1G","algorithm":"zstd","level":3,"mem_limit":"0"}"#,
        r#"{"version":1,"command":"remove","device":"zram0","force":true}"#,
        r#"{"version":1,"command":"reset","device":"zram0"}"#,
        r#"{"version":1,"command":"get","device":"zram0","attributes":["mm_stat","disksize"]}"#,
        r#"{"version":1,"command":"set","device":"zram0","attribute":"mem_limit","value":"8M"}"#,
        r#"{"version":1,"command":"describe","device":"zram0"}"#,
        r#"{"version":1,"command":"stop","force":false}"#,
        r#"{"version":1,"error":{"errno":16,"symbol":"EBUSY","message":"in use"}}"#,
        r#"{"version":1,"ok":{"rampack":"0.1.0","pid":1,"root":"/run","nbd":[],"devices":[]}}"#,
    ];
    texts.iter().map(|text| format!("{text}\n").into_bytes()).collect()
}
