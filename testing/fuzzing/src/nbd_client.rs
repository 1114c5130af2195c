//! The client's end of an NBD connection: it writes requests and reads the answers. The numbers
//! come from the protocol document (`doc/proto.md` of the NBD project). They are a second copy, so
//! that an error in the server's own table shows.

use std::collections::BTreeMap;

/// The size of the served device in bytes.
pub const DEVICE_BYTES: usize = 64 * 1024;

const GREETING_BYTES: usize = 18;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

const OPT_EXPORT_NAME: u32 = 1;
const OPT_ABORT: u32 = 2;
const OPT_LIST: u32 = 3;
const OPT_STARTTLS: u32 = 5;
const OPT_INFO: u32 = 6;
const OPT_GO: u32 = 7;
const OPT_STRUCTURED_REPLY: u32 = 8;
const OPT_LIST_META_CONTEXT: u32 = 9;
const OPT_SET_META_CONTEXT: u32 = 10;
const REP_ACK: u32 = 1;

const CMD_READ: u16 = 0;
const CMD_WRITE: u16 = 1;
const CMD_DISC: u16 = 2;

/// A request that the client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub flags: u16,
    pub command: u16,
    pub cookie: u64,
    pub offset: u64,
    pub length: u32,
}

/// A whole connection.
pub struct Conversation {
    /// The bytes that the client sends.
    pub bytes: Vec<u8>,
    /// The requests in it that the server must answer; `None` when the bytes are raw.
    pub requests: Option<Vec<Sent>>,
    structured: bool,
}

impl Conversation {
    /// Makes a good negotiation from the first byte and requests from the rest.
    pub fn from_fuzz(input: &[u8]) -> Conversation {
        let (choice, rest) = input.split_first().map_or((0, input), |(first, rest)| (*first, rest));
        let structured = choice & 2 != 0;
        let mut bytes = client_flags();
        if structured {
            bytes.extend(option(OPT_STRUCTURED_REPLY, &[]));
            if choice & 4 != 0 {
                bytes.extend(option(OPT_SET_META_CONTEXT, &meta_query(&[b"base:allocation"])));
            }
        }
        bytes.extend(option(OPT_GO, &info_query(&[3])));
        if choice & 1 == 0 {
            bytes.extend_from_slice(rest);
            return Conversation { bytes, requests: None, structured };
        }
        let mut requests = Vec::new();
        // Eight bytes describe a request; the payload of a write is made of the same bytes.
        for (index, shape) in rest.as_chunks::<8>().0.iter().enumerate() {
            let word = u64::from_le_bytes(*shape);
            // Most bytes choose a command that exists; 0xf0 and above choose any other.
            let command = match shape[0] {
                any @ 0xf0.. => u16::from(any),
                known => u16::from(known & 7),
            };
            let flags =
                if shape[1] & 0xc0 == 0xc0 { u16::from(shape[1]) } else { shape[1] as u16 & 5 };
            let device = DEVICE_BYTES as u64;
            let (offset, length) = match shape[2] & 0xf {
                // Far outside the device, up to the largest offset.
                0 => (word, 4096),
                1 => (u64::MAX - (word >> 60), (word >> 8) as u32),
                2 => ((word >> 24) % device, (word >> 8) as u32),
                3 => ((word >> 24) % device, 0),
                // Across the end of the device, or inside it.
                _ => ((word >> 24) % device, (word >> 40) as u32 % (DEVICE_BYTES as u32 / 2)),
            };
            // A write carries its payload, so it stays short. Raw inputs cover requests that are
            // longer than the server takes.
            let length = if command == CMD_WRITE { length % 8192 } else { length };
            let cookie = word ^ index as u64;
            let sent = Sent { flags, command, cookie, offset, length };
            bytes.extend(request(&sent));
            if command == CMD_WRITE {
                bytes.extend(shape.iter().cycle().take(length as usize));
            }
            let last = command == CMD_DISC;
            requests.push(sent);
            if last {
                break;
            }
        }
        Conversation { bytes, requests: Some(requests), structured }
    }

    /// Checks the bytes that the server sent. An error names the fault.
    pub fn check(&self, output: &[u8]) -> Result<(), String> {
        let mut rest = output.get(GREETING_BYTES..).ok_or("no greeting")?;
        loop {
            let reply = OptionReply::take(&mut rest)?.ok_or("negotiation does not end")?;
            if reply.kind >= 1 << 31 {
                return Err(format!("option {} refused: {:#x}", reply.option, reply.kind));
            }
            if reply.option == OPT_GO && reply.kind == REP_ACK {
                break;
            }
        }
        let Some(requests) = &self.requests else { return Ok(()) };
        // A cookie may repeat. Then it needs one answer for each request.
        let mut waiting: BTreeMap<u64, Vec<&Sent>> = BTreeMap::new();
        for sent in requests.iter().rev().filter(|sent| sent.command != CMD_DISC) {
            waiting.entry(sent.cookie).or_default().push(sent);
        }
        while !rest.is_empty() {
            self.take_reply(&mut rest, &mut waiting)?;
        }
        waiting.retain(|_, sent| !sent.is_empty());
        if waiting.is_empty() { Ok(()) } else { Err(format!("not answered: {waiting:?}")) }
    }

    fn take_reply(
        &self,
        rest: &mut &[u8],
        waiting: &mut BTreeMap<u64, Vec<&Sent>>,
    ) -> Result<(), String> {
        let magic = take_u32(rest)?;
        let (done, cookie, payload) = match magic {
            0x6744_6698 => {
                let error = take_u32(rest)?;
                let cookie = take_u64(rest)?;
                let asked = waiting.get(&cookie).and_then(|sent| sent.last());
                let read = asked.filter(|sent| sent.command == CMD_READ);
                if read.is_some() && self.structured {
                    return Err(format!("READ {cookie:#x} answered with a simple reply"));
                }
                let payload = match read {
                    Some(sent) if error == 0 => sent.length,
                    _ => 0,
                };
                (true, cookie, payload)
            }
            0x668e_33ef => {
                if !self.structured {
                    return Err("a structured reply nobody agreed to".into());
                }
                let flags = take_u16(rest)?;
                let _kind = take_u16(rest)?;
                let cookie = take_u64(rest)?;
                (flags & 1 != 0, cookie, take_u32(rest)?)
            }
            other => return Err(format!("a reply begins with {other:#x}")),
        };
        take(rest, payload as usize)?;
        let asked = waiting.get_mut(&cookie).filter(|sent| !sent.is_empty());
        let asked = asked.ok_or_else(|| format!("an answer to {cookie:#x}, which nobody asked"))?;
        if done {
            asked.pop();
        }
        Ok(())
    }
}

struct OptionReply {
    option: u32,
    kind: u32,
}

impl OptionReply {
    /// The next reply to an option, with its data; `None` when something else follows.
    fn take(rest: &mut &[u8]) -> Result<Option<OptionReply>, String> {
        if !rest.starts_with(&OPTION_REPLY_MAGIC.to_be_bytes()) {
            return Ok(None);
        }
        take(rest, 8)?;
        let option = take_u32(rest)?;
        let kind = take_u32(rest)?;
        let length = take_u32(rest)?;
        take(rest, length as usize)?;
        Ok(Some(OptionReply { option, kind }))
    }
}

/// Panics unless `output` begins with a greeting, followed by whole replies to options.
pub fn check_negotiation(output: &[u8]) {
    assert!(output.starts_with(b"NBDMAGICIHAVEOPT"), "no greeting: {output:02x?}");
    assert!(output.len() >= GREETING_BYTES, "half a greeting");
    let mut rest = &output[GREETING_BYTES..];
    loop {
        match OptionReply::take(&mut rest) {
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(fault) => panic!("half a reply to an option: {fault}"),
        }
    }
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], String> {
    let (taken, left) = rest
        .split_at_checked(bytes)
        .ok_or_else(|| format!("cut off: {bytes} bytes announced, {} sent", rest.len()))?;
    *rest = left;
    Ok(taken)
}

fn take_u16(rest: &mut &[u8]) -> Result<u16, String> {
    Ok(take(rest, 2)?.iter().fold(0, |word, byte| word << 8 | u16::from(*byte)))
}

fn take_u32(rest: &mut &[u8]) -> Result<u32, String> {
    Ok(take(rest, 4)?.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
}

fn take_u64(rest: &mut &[u8]) -> Result<u64, String> {
    Ok(take(rest, 8)?.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

fn client_flags() -> Vec<u8> {
    // Fixed newstyle, and no zeroes after EXPORT_NAME.
    3u32.to_be_bytes().to_vec()
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

fn text(text: &[u8]) -> Vec<u8> {
    let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
    bytes.extend(text);
    bytes
}

fn info_query(wanted: &[u16]) -> Vec<u8> {
    let mut bytes = text(b"disk");
    bytes.extend((wanted.len() as u16).to_be_bytes());
    bytes.extend(wanted.iter().flat_map(|kind| kind.to_be_bytes()));
    bytes
}

fn meta_query(queries: &[&[u8]]) -> Vec<u8> {
    let mut bytes = text(b"disk");
    bytes.extend((queries.len() as u32).to_be_bytes());
    bytes.extend(queries.iter().flat_map(|query| text(query)));
    bytes
}

fn request(sent: &Sent) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend(sent.flags.to_be_bytes());
    bytes.extend(sent.command.to_be_bytes());
    bytes.extend(sent.cookie.to_be_bytes());
    bytes.extend(sent.offset.to_be_bytes());
    bytes.extend(sent.length.to_be_bytes());
    bytes
}

/// Negotiations of every option, and the bare data of some options for the parsers.
pub fn negotiation_seeds() -> Vec<Vec<u8>> {
    let meta = meta_query(&[b"base:", b"base:allocation", b"qemu:dirty-bitmap:x"]);
    let options = [
        option(OPT_LIST, &[]),
        option(OPT_INFO, &info_query(&[0, 1, 2, 3])),
        option(OPT_STARTTLS, &[]),
        option(OPT_STRUCTURED_REPLY, &[]),
        option(OPT_LIST_META_CONTEXT, &meta),
        option(OPT_SET_META_CONTEXT, &meta),
        option(77, b"unknown"),
        option(OPT_GO, &info_query(&[1, 3])),
    ];
    let mut seeds = vec![
        [client_flags(), option(OPT_EXPORT_NAME, b"disk")].concat(),
        [client_flags(), option(OPT_ABORT, &[])].concat(),
        [client_flags(), options.concat()].concat(),
        info_query(&[0, 3]),
        meta,
        b"disk".to_vec(),
    ];
    seeds.extend(options.into_iter().map(|option| [client_flags(), option].concat()));
    seeds
}

/// Requests of every command: well-framed ones, and raw bytes.
pub fn request_seeds() -> Vec<Vec<u8>> {
    let mut shaped = vec![7];
    for command in [1, 0, 3, 4, 0, 6, 7, 5, 0, 0xff, 2] {
        shaped.extend([command, 0, 4, 0, 0x10, 0, 0x30, 0]);
    }
    let mut raw = vec![6];
    for command in 0..9 {
        let length = if command == CMD_WRITE { 16 } else { 4096 };
        let sent = Sent { flags: 0, command, cookie: 99, offset: 8192, length };
        raw.extend(request(&sent));
        if command == CMD_WRITE {
            raw.extend([0x5a; 16]);
        }
    }
    let oversize = Sent { flags: 0, command: CMD_WRITE, cookie: 1, offset: 0, length: u32::MAX };
    let mut simple = shaped.clone();
    simple[0] = 1;
    vec![shaped, simple, raw, [vec![0], request(&oversize)].concat()]
}
