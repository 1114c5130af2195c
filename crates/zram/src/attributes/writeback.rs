//! Attributes of idle pages and of writeback.

use alloc::format;

use control::{Access, Attribute, ControlError, Errno, Number, ValueKind, parse_switch};

use super::keys::{decimal, integer, put, unknown, words};
use crate::{Disk, Select, Writeback};

pub(super) const IDLE: Attribute<Disk> = Attribute {
    name: "idle",
    access: Access::ActOnWrite,
    unit: "text",
    kind: ValueKind::Plain,
    help: "all marks every page idle; a number of seconds those not used in that time",
    show: None,
    store: Some(|disk, text| match text.trim() {
        "all" => disk.mark_idle(None),
        seconds => {
            let seconds = integer("idle", seconds).map_err(|error| ControlError {
                message: format!("idle takes \"all\" or seconds: {}", error.message),
                errno: Errno::EINVAL,
            })?;
            disk.mark_idle(Some(seconds))
        }
    }),
};

pub(super) const BACKING_DEV: Attribute<Disk> = Attribute {
    name: "backing_dev",
    access: Access::ReadWrite,
    unit: "path",
    kind: ValueKind::Plain,
    help: "block device or file that pages are written back to; set before the size",
    show: Some(|disk, out| match disk.backing_path() {
        Some(path) => put(out, format_args!("{path}\n")),
        None => put(out, format_args!("none\n")),
    }),
    store: Some(|disk, text| match text.strip_suffix('\n').unwrap_or(text) {
        "" => Err(ControlError::invalid("backing_dev takes the path of a block device or a file")),
        path => disk.set_backing(path),
    }),
};

pub(super) const WRITEBACK: Attribute<Disk> = Attribute {
    name: "writeback",
    access: Access::ActOnWrite,
    unit: "text",
    kind: ValueKind::Plain,
    help: "writes pages back, the largest first: type=idle|huge|huge_idle|incompressible, \
           page_index=NUMBER, page_indexes=FIRST-LAST",
    show: None,
    store: Some(|disk, text| {
        const ALLOWED: &str = "type=idle|huge|huge_idle|incompressible, page_index=NUMBER, \
                               page_indexes=FIRST-LAST";
        disk.can_write_back()?;
        let mut what = Writeback::default();
        for word in words(text) {
            match word {
                ("type", Some(kind)) | (kind, None) => {
                    what.select = Some(match kind {
                        "idle" => Select::Idle,
                        "huge" => Select::Huge,
                        "huge_idle" => Select::HugeIdle,
                        "incompressible" => Select::Incompressible,
                        _ => return Err(unknown("writeback", word.0, word.1, ALLOWED)),
                    });
                }
                ("page_index", Some(value)) => {
                    let index = decimal("page_index", value)?;
                    what.pages.push((index, index));
                }
                ("page_indexes", Some(value)) => {
                    let Some((first, last)) = value.split_once('-') else {
                        return Err(unknown("writeback", word.0, word.1, ALLOWED));
                    };
                    let first = decimal("page_indexes", first)?;
                    what.pages.push((first, decimal("page_indexes", last)?));
                }
                (key, value) => return Err(unknown("writeback", key, value, ALLOWED)),
            }
        }
        if what == Writeback::default() {
            return Err(ControlError::invalid(format!("writeback takes {ALLOWED}")));
        }
        disk.writeback(&what)
    }),
};

pub(super) const WRITEBACK_LIMIT: Attribute<Disk> = Attribute {
    name: "writeback_limit",
    access: Access::ReadWrite,
    unit: "pages",
    kind: ValueKind::Plain,
    help: "pages that may still be written back, where writeback_limit_enable is 1",
    show: Some(|disk, out| put(out, format_args!("{}\n", disk.writeback_limit().0))),
    store: Some(|disk, text| {
        disk.set_writeback_limit(decimal("writeback_limit", text)?);
        Ok(())
    }),
};

pub(super) const WRITEBACK_LIMIT_ENABLE: Attribute<Disk> = Attribute {
    name: "writeback_limit_enable",
    access: Access::ReadWrite,
    unit: "flag",
    kind: ValueKind::Plain,
    help: "a number other than 0 lets writeback_limit hold",
    show: Some(|disk, out| put(out, format_args!("{}\n", u8::from(disk.writeback_limit().1)))),
    store: Some(|disk, text| {
        // A number in Linux, not a switch; each that cannot be read is EINVAL.
        let number = decimal::<u64>("writeback_limit_enable", text)
            .map_err(|error| ControlError { errno: Errno::EINVAL, ..error })?;
        disk.limit_writeback(number != 0);
        Ok(())
    }),
};

pub(super) const WRITEBACK_BATCH_SIZE: Attribute<Disk> = Attribute {
    name: "writeback_batch_size",
    access: Access::ReadWrite,
    unit: "pages",
    kind: ValueKind::Plain,
    help: "pages under way to the backing device at a time, 1 to 4096",
    show: Some(|disk, out| put(out, format_args!("{}\n", disk.writeback_batch()))),
    store: Some(|disk, text| disk.set_writeback_batch(decimal("writeback_batch_size", text)?)),
};

pub(super) const COMPRESSED_WRITEBACK: Attribute<Disk> = Attribute {
    name: "compressed_writeback",
    access: Access::ReadWrite,
    unit: "flag",
    kind: ValueKind::Plain,
    help: "1 writes pages back as they are in memory, one to a block; set before the size",
    show: Some(|disk, out| put(out, format_args!("{}\n", u8::from(disk.compressed_writeback())))),
    store: Some(|disk, text| {
        disk.set_compressed_writeback(parse_switch("compressed_writeback", text)?)
    }),
};

pub(super) const SCRUB: Attribute<Disk> = Attribute {
    name: "scrub",
    access: Access::ActOnWrite,
    unit: "flag",
    kind: ValueKind::Plain,
    help: "anything reads all that was written back, and fails if a page is not as it was written",
    show: None,
    store: Some(|disk, _| disk.scrub().map(|_| ())),
};

pub(super) const SEALED_BACKING: Attribute<Disk> = Attribute {
    name: "sealed_backing",
    access: Access::ReadWrite,
    unit: "flag",
    kind: ValueKind::Plain,
    help: "1 encrypts what is written back, and checks what is read; set before backing_dev",
    show: Some(|disk, out| put(out, format_args!("{}\n", u8::from(disk.sealed_backing())))),
    store: Some(|disk, text| disk.set_sealed_backing(parse_switch("sealed_backing", text)?)),
};

pub(super) const BACKING_LAYOUT: Attribute<Disk> = Attribute {
    name: "backing_layout",
    access: Access::ReadWrite,
    unit: "text",
    kind: ValueKind::Plain,
    help: "pages gives each page a block, as Linux does; log packs compressed pages; set before \
           backing_dev",
    show: Some(|disk, out| {
        put(out, format_args!("{}\n", if disk.backing_log() { "log" } else { "pages" }))
    }),
    store: Some(|disk, text| match text.trim() {
        "pages" => disk.set_backing_log(false),
        "log" => disk.set_backing_log(true),
        other => Err(ControlError::invalid(format!(
            "backing_layout takes \"pages\" or \"log\", not {other:?}"
        ))),
    }),
};

pub(super) const LOG_STAT: Attribute<Disk> = Attribute {
    name: "log_stat",
    access: Access::Read,
    unit: "text",
    kind: ValueKind::Row(&[
        Number::gauge("log_capacity", "bytes", "bytes that the log can hold"),
        Number::gauge("log_live", "bytes", "bytes of the log in use"),
        Number::counter("log_written", "bytes", "bytes written to the log"),
        Number::counter("log_copied", "bytes", "bytes among these copied by cleaning"),
        Number::counter("log_cleaned", "segments", "segments cleaned"),
        Number::gauge("log_free", "segments", "segments of the log that are free"),
        Number::gauge("log", "segments", "segments of the log"),
    ]),
    help: "of a log: bytes it can hold, in use, written, of these copied by cleaning; segments \
           cleaned, free, in all",
    show: Some(|disk, out| {
        let s = disk.log_stats().unwrap_or_default();
        put(
            out,
            format_args!(
                "{} {} {} {} {} {} {}\n",
                s.capacity_bytes,
                s.live_bytes,
                s.written_bytes,
                s.copied_bytes,
                s.cleaned_segments,
                s.free_segments,
                s.segments
            ),
        )
    }),
    store: None,
};

pub(super) const BACKING_REMOTE: Attribute<Disk> = Attribute {
    name: "backing_remote",
    access: Access::ReadWrite,
    unit: "text",
    kind: ValueKind::Plain,
    help: "URIs of stores that cold parts of a log go to, with cold=SECONDS, copies=NUMBER and \
           more; none is none; set before backing_dev",
    show: Some(|disk, out| put(out, format_args!("{}\n", disk.remote().unwrap_or("none".into())))),
    store: Some(|disk, text| disk.set_remote(text.trim())),
};

pub(super) const REMOTE_STAT: Attribute<Disk> = Attribute {
    name: "remote_stat",
    access: Access::Read,
    unit: "text",
    kind: ValueKind::Row(&[
        Number::gauge("remote", "bytes", "bytes that only remote stores have"),
        Number::gauge("remote_local", "bytes", "bytes of the log that are here"),
        Number::counter("remote_uploaded", "bytes", "bytes written to remote stores"),
        Number::counter("remote_downloaded", "bytes", "bytes read from remote stores"),
        Number::counter("remote_requests", "count", "requests to remote stores"),
        Number::counter("remote_failed_requests", "count", "requests that failed"),
        Number::counter("remote_wrong_answers", "count", "requests answered wrongly"),
        Number::gauge("remote_stores", "count", "remote stores"),
        Number::gauge("remote_lost_stores", "count", "remote stores left alone as they failed"),
    ]),
    help: "of remote stores: bytes that only they have, bytes of the log that are here, written to \
           stores, read from them; requests, of these failed, answered wrongly; stores, of these \
           left alone because they failed",
    show: Some(|disk, out| {
        let s = disk.remote_stats().unwrap_or_default();
        put(
            out,
            format_args!(
                "{} {} {} {} {} {} {} {} {}\n",
                s.remote_bytes,
                s.local_bytes,
                s.uploaded_bytes,
                s.downloaded_bytes,
                s.requests,
                s.failed_requests,
                s.wrong_answers,
                s.stores,
                s.lost_stores
            ),
        )
    }),
    store: None,
};
