//! Option haggling: from the client's flags to the choice of an export.

use std::io;
use std::sync::Arc;

use block::BlockDevice;

use crate::buffer::Output;
use crate::outcome::{Answer, Discarding, Outcome, Progress};
use crate::transmit::Transmission;
use crate::wire::{
    self, ALLOCATION_ID, InfoQuery, MAX_STRING, Malformed, OPTION_HEADER, export, info, opt,
    parse_info_query, parse_meta_query, parse_name, parse_option_header, rep,
};
use crate::{Exports, MAX_PAYLOAD, OpenError};

/// The longest option data that is parsed, in bytes: two strings of the largest size and many small
/// ones fit.
const MAX_OPTION: u32 = 64 << 10;
/// An option with more data than this, in bytes, ends the connection.
const MAX_DISCARDED: u32 = 16 << 20;
/// The most options on one connection; real clients send about ten.
const MAX_OPTIONS: u32 = 1024;

/// The only metadata context.
const ALLOCATION: &str = "base:allocation";
/// Its namespace; in a LIST query it asks for all its contexts.
const NAMESPACE: &[u8] = b"base:";

/// What a client may do without TLS, and whether it has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Security {
    /// There is no TLS.
    Plain,
    /// The client has to start TLS before anything else.
    Required,
    /// TLS is on.
    Tls,
}

pub(crate) struct Negotiation {
    no_zeroes: bool,
    security: Security,
    structured: bool,
    /// The export that `base:allocation` was chosen for.
    allocation_of: Option<String>,
    options: u32,
}

/// The result of one option.
pub(crate) enum Step {
    /// Negotiation goes on.
    Go(Outcome),
    /// The option used this many bytes, and negotiation is over.
    Begin(usize, Box<Transmission>),
    /// The option used this many bytes, and negotiation begins anew in TLS.
    StartTls(usize),
}

/// An opened export, for a reply or for transmission.
struct Opened {
    name: String,
    description: String,
    device: Arc<dyn BlockDevice>,
}

/// Opens an export; the empty name means the first one.
fn open(exports: &dyn Exports, name: &str) -> Result<Opened, OpenError> {
    let list = exports.list();
    let found = list.into_iter().find(|entry| name.is_empty() || entry.name == name);
    let (name, description) = match found {
        Some(entry) => (entry.name, entry.description),
        // An export may be offered and not listed.
        None if !name.is_empty() => (name.to_string(), String::new()),
        None => return Err(OpenError::Unknown),
    };
    let device = exports.open(&name)?;
    Ok(Opened { name, description, device })
}

fn reply(output: &mut Output, option: u32, kind: u32, parts: &[&[u8]]) -> io::Result<()> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    output.put(&wire::option_reply(option, kind, length as u32))?;
    parts.iter().try_for_each(|part| output.put(part))
}

fn refuse(
    output: &mut Output,
    option: u32,
    kind: u32,
    why: &dyn core::fmt::Display,
) -> io::Result<()> {
    let mut text = why.to_string();
    text.truncate(text.floor_char_boundary(MAX_STRING));
    reply(output, option, kind, &[text.as_bytes()])
}

const fn kind_of(error: &OpenError) -> u32 {
    match error {
        OpenError::Unknown => rep::ERR_UNKNOWN,
        OpenError::Refused(_) => rep::ERR_POLICY,
        OpenError::ShuttingDown => rep::ERR_SHUTDOWN,
    }
}

impl Negotiation {
    pub(crate) fn new(no_zeroes: bool, security: Security) -> Negotiation {
        Negotiation { no_zeroes, security, structured: false, allocation_of: None, options: 0 }
    }

    /// Answers the option at the start of `input`.
    pub(crate) fn option(
        &mut self,
        exports: &dyn Exports,
        input: &[u8],
        output: &mut Output,
    ) -> io::Result<Step> {
        const CLOSE: io::Result<Step> = Ok(Step::Go(Outcome::Progress(Progress::Close)));
        let Ok(header) = parse_option_header(input) else { return CLOSE };
        let Some(header) = header else {
            return Ok(Step::Go(Outcome::Progress(Progress::Need(16))));
        };
        let option = header.option;
        if header.length > MAX_OPTION {
            self.options += 1;
            // EXPORT_NAME has no error reply.
            let is_too_long = header.length > MAX_DISCARDED || option == opt::EXPORT_NAME;
            if is_too_long || self.options > MAX_OPTIONS {
                return CLOSE;
            }
            let then = if known(option) {
                let message = "the data of an option is at most 65536 bytes";
                Answer::Option { option, kind: rep::ERR_TOO_BIG, message }
            } else {
                Answer::Option { option, kind: rep::ERR_UNSUP, message: "unknown option" }
            };
            let discarding = Discarding { left: u64::from(header.length), then };
            return Ok(Step::Go(Outcome::Discard(OPTION_HEADER, discarding)));
        }
        let used = OPTION_HEADER + header.length as usize;
        let Some(data) = input.get(OPTION_HEADER..used) else {
            return Ok(Step::Go(Outcome::Progress(Progress::Need(used))));
        };
        self.options += 1;
        if self.options > MAX_OPTIONS {
            return CLOSE;
        }
        match option {
            opt::ABORT => {
                reply(output, option, rep::ACK, &[])?;
                return CLOSE;
            }
            opt::STARTTLS if self.security != Security::Plain => {
                if let (Security::Required, true) = (self.security, data.is_empty()) {
                    reply(output, option, rep::ACK, &[])?;
                    // What was agreed in the clear does not count.
                    *self = Negotiation::new(self.no_zeroes, Security::Tls);
                    return Ok(Step::StartTls(used));
                }
                let why = if data.is_empty() { "TLS is on" } else { "there are data" };
                refuse(output, option, rep::ERR_INVALID, &why)?;
            }
            opt::EXPORT_NAME if self.security == Security::Required => return CLOSE,
            _ if self.security == Security::Required => {
                refuse(output, option, rep::ERR_TLS_REQD, &"this server wants TLS first")?;
            }
            opt::EXPORT_NAME => {
                return self.export_name(exports, data, used, output);
            }
            opt::LIST => list(exports, data, output)?,
            opt::INFO | opt::GO => {
                if let Some(device) = self.info(exports, option, data, output)? {
                    return Ok(Step::Begin(used, device));
                }
            }
            opt::STRUCTURED_REPLY => {
                if data.is_empty() {
                    self.structured = true;
                    reply(output, option, rep::ACK, &[])?;
                } else {
                    refuse(output, option, rep::ERR_INVALID, &Malformed::Long)?;
                }
            }
            opt::LIST_META_CONTEXT | opt::SET_META_CONTEXT => {
                self.meta_context(exports, option, data, output)?;
            }
            _ => refuse(output, option, rep::ERR_UNSUP, &"unknown option")?,
        }
        Ok(Step::Go(Outcome::Progress(Progress::Consumed(used))))
    }

    fn begin(&self, opened: Opened) -> Box<Transmission> {
        let contexts = self.structured && self.allocation_of.as_ref() == Some(&opened.name);
        Box::new(Transmission::new(opened.device, self.structured, contexts))
    }

    fn export_name(
        &self,
        exports: &dyn Exports,
        data: &[u8],
        used: usize,
        output: &mut Output,
    ) -> io::Result<Step> {
        let opened = parse_name(data).ok().and_then(|name| open(exports, name).ok());
        let Some(opened) = opened else { return Ok(Step::Go(Outcome::Progress(Progress::Close))) };
        output.put(&opened.device.geometry().bytes.to_be_bytes())?;
        output.put(&transmission_flags(&*opened.device, self.structured).to_be_bytes())?;
        if !self.no_zeroes {
            output.put(&[0; 124])?;
        }
        Ok(Step::Begin(used, self.begin(opened)))
    }

    /// Answers INFO and GO; after a successful GO it returns the device.
    fn info(
        &self,
        exports: &dyn Exports,
        option: u32,
        data: &[u8],
        output: &mut Output,
    ) -> io::Result<Option<Box<Transmission>>> {
        let query = match parse_info_query(data) {
            Ok(query) => query,
            Err(wrong) => {
                refuse(output, option, rep::ERR_INVALID, &wrong)?;
                return Ok(None);
            }
        };
        let opened = match open(exports, query.name) {
            Ok(opened) => opened,
            Err(error) => {
                refuse(output, option, kind_of(&error), &error)?;
                return Ok(None);
            }
        };
        self.describe(&query, &opened, option, output)?;
        reply(output, option, rep::ACK, &[])?;
        Ok((option == opt::GO).then(|| self.begin(opened)))
    }

    fn describe(
        &self,
        query: &InfoQuery<'_>,
        opened: &Opened,
        option: u32,
        output: &mut Output,
    ) -> io::Result<()> {
        let geometry = opened.device.geometry();
        let flags = transmission_flags(&*opened.device, self.structured);
        let mut tell = |kind: u16, parts: [&[u8]; 3]| {
            let kind = kind.to_be_bytes();
            reply(output, option, rep::INFO, &[&kind, parts[0], parts[1], parts[2]])
        };
        tell(info::EXPORT, [&geometry.bytes.to_be_bytes(), &flags.to_be_bytes(), &[]])?;
        if query.wants(info::NAME) {
            tell(info::NAME, [opened.name.as_bytes(), &[], &[]])?;
        }
        if query.wants(info::DESCRIPTION) && !opened.description.is_empty() {
            tell(info::DESCRIPTION, [opened.description.as_bytes(), &[], &[]])?;
        }
        // A client must learn the minimum block of a device, even if it did not ask for it.
        if query.wants(info::PAGEBLOCK_SIZE) || geometry.minimum_block > 1 {
            let minimum = geometry.minimum_block.max(1);
            // "The preferred block size MUST be at least the minimum"; here it is 512 or more.
            let preferred = geometry.preferred_block.max(minimum).max(512);
            tell(
                info::PAGEBLOCK_SIZE,
                [&minimum.to_be_bytes(), &preferred.to_be_bytes(), &MAX_PAYLOAD.to_be_bytes()],
            )?;
        }
        Ok(())
    }

    fn meta_context(
        &mut self,
        exports: &dyn Exports,
        option: u32,
        data: &[u8],
        output: &mut Output,
    ) -> io::Result<()> {
        let setting = option == opt::SET_META_CONTEXT;
        if setting {
            // A SET cancels the one before, even if it fails.
            self.allocation_of = None;
        }
        if !self.structured {
            let why = "structured replies must be negotiated first";
            return refuse(output, option, rep::ERR_INVALID, &why);
        }
        let query = match parse_meta_query(data) {
            Ok(query) => query,
            Err(wrong) => return refuse(output, option, rep::ERR_INVALID, &wrong),
        };
        let name = match open(exports, query.name) {
            Ok(opened) => opened.name,
            Err(error) => return refuse(output, option, kind_of(&error), &error),
        };
        let mut queries = query.queries().peekable();
        let everything = !setting && queries.peek().is_none();
        // A namespace alone is a wildcard; only LIST may use it.
        let chosen =
            |query: &[u8]| query == ALLOCATION.as_bytes() || (!setting && query == NAMESPACE);
        if everything || queries.any(chosen) {
            let id = if setting { ALLOCATION_ID } else { 0 };
            reply(output, option, rep::META_CONTEXT, &[&id.to_be_bytes(), ALLOCATION.as_bytes()])?;
            if setting {
                self.allocation_of = Some(name);
            }
        }
        reply(output, option, rep::ACK, &[])
    }
}

fn known(option: u32) -> bool {
    use opt::{ABORT, GO, INFO, LIST, LIST_META_CONTEXT, SET_META_CONTEXT, STRUCTURED_REPLY};
    matches!(
        option,
        ABORT | LIST | INFO | GO | STRUCTURED_REPLY | LIST_META_CONTEXT | SET_META_CONTEXT
    )
}

fn list(exports: &dyn Exports, data: &[u8], output: &mut Output) -> io::Result<()> {
    if !data.is_empty() {
        return refuse(output, opt::LIST, rep::ERR_INVALID, &Malformed::Long);
    }
    for entry in exports.list() {
        let length = (entry.name.len() as u32).to_be_bytes();
        let parts = [&length, entry.name.as_bytes(), entry.description.as_bytes()];
        reply(output, opt::LIST, rep::SERVER, &parts)?;
    }
    reply(output, opt::LIST, rep::ACK, &[])
}

/// The flags that the client may use. FLUSH and FUA are offered even where they do nothing, so a
/// client that wants durability asks for it; no durability beyond that of RAM is promised. All
/// connections share one device, so a flush on one covers all.
fn transmission_flags(device: &dyn BlockDevice, structured: bool) -> u16 {
    let abilities = device.abilities();
    let mut flags = export::HAS_FLAGS
        | export::SEND_FLUSH
        | export::SEND_FUA
        | export::SEND_CACHE
        | export::CAN_MULTI_CONN;
    if abilities.read_only {
        flags |= export::READ_ONLY;
    } else {
        flags |= export::SEND_WRITE_ZEROES | export::SEND_FAST_ZERO;
        if abilities.discard {
            flags |= export::SEND_TRIM;
        }
    }
    if structured {
        flags |= export::SEND_DF;
    }
    flags
}
