//! `nbdlink`: gives the kernel's NBD client its connections, by netlink. Requests of a connection
//! that is gone wait for another one, as `nbd-client` does not have it.
//!
//! ```text
//! nbdlink connect SOCKET EXPORT NUMBER CONNECTIONS   /dev/nbdNUMBER begins
//! nbdlink again SOCKET EXPORT NUMBER CONNECTIONS     new connections for those that are gone
//! nbdlink end NUMBER                                 the device ends
//! ```
//!
//! The exit status is 0 if the kernel took them.

use std::env;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use guestkit::process::{generic_netlink, protect};

/// Commands of the families `nlctrl` and `nbd` (linux/genetlink.h, linux/nbd-netlink.h).
const GET_FAMILY: u8 = 3;
const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;
/// The family that knows the others.
const CONTROL: u16 = 16;
/// The type of a message with an error number, and a flag: it answers also if there is no error.
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
/// Seconds after which a request is looked after: one whose connection is gone is sent again.
const TIMEOUT: u64 = 5;
/// Seconds in which a device may be without connections.
const DEAD: u64 = 300;

fn main() -> ExitCode {
    // It gives the device its connection back while the memory of others waits for that.
    if !protect() {
        eprintln!("nbdlink: not allowed all of its protections");
    }
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nbdlink {}: {error}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> io::Result<()> {
    let parsed = |word: &str| word.parse::<u32>().map_err(io::Error::other);
    match words {
        ["end", number] => link(DISCONNECT, &attribute(1, &parsed(number)?.to_ne_bytes())),
        [command @ ("connect" | "again"), socket, export, number, connections] => {
            let mut body = attribute(1, &parsed(number)?.to_ne_bytes());
            let mut streams = Vec::new();
            let mut sockets = Vec::new();
            for _ in 0..parsed(connections)? {
                let mut stream = UnixStream::connect(socket)?;
                let (size, flags) = choose(&mut stream, export)?;
                if *command == "connect" && streams.is_empty() {
                    for (kind, value) in [(2, size), (3, 4096), (4, TIMEOUT), (5, flags), (8, DEAD)]
                    {
                        body.extend(attribute(kind, &value.to_ne_bytes()));
                    }
                }
                let descriptor = attribute(1, &stream.as_raw_fd().to_ne_bytes());
                sockets.extend(attribute(1 | NESTED, &descriptor));
                streams.push(stream);
            }
            body.extend(attribute(7 | NESTED, &sockets));
            link(if *command == "connect" { CONNECT } else { RECONFIGURE }, &body)
        }
        _ => Err(io::Error::other("usage: connect|again SOCKET EXPORT NUMBER CONNECTIONS")),
    }
}

/// Chooses an export; gives its size in bytes, and its flags.
fn choose(stream: &mut UnixStream, export: &str) -> io::Result<(u64, u64)> {
    stream.read_exact(&mut [0; 18])?;
    // Fixed newstyle, without zeroes; NBD_OPT_EXPORT_NAME.
    let mut option = 3u32.to_be_bytes().to_vec();
    option.extend(b"IHAVEOPT");
    option.extend(1u32.to_be_bytes());
    option.extend((export.len() as u32).to_be_bytes());
    option.extend(export.as_bytes());
    stream.write_all(&option)?;
    let (mut size, mut flags) = ([0; 8], [0; 2]);
    stream.read_exact(&mut size)?;
    stream.read_exact(&mut flags)?;
    Ok((u64::from_be_bytes(size), u16::from_be_bytes(flags).into()))
}

/// The flag of an attribute that has attributes.
const NESTED: u16 = 1 << 15;

/// An attribute, padded to four bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Gives the kernel's client a command.
fn link(command: u8, body: &[u8]) -> io::Result<()> {
    let mut netlink = generic_netlink()?;
    let answer = ask(&mut netlink, CONTROL, GET_FAMILY, &attribute(2, b"nbd\0"))?;
    let family = find(&answer, 1).and_then(|value| value.try_into().ok());
    let family = family.map(u16::from_ne_bytes).ok_or(io::ErrorKind::InvalidData)?;
    ask(&mut netlink, family, command, body).map(drop)
}

/// Asks a family, and gives the attributes of its answer.
fn ask(netlink: &mut File, family: u16, command: u8, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut message = (20 + body.len() as u32).to_ne_bytes().to_vec();
    message.extend(family.to_ne_bytes());
    message.extend((REQUEST | ACKNOWLEDGE).to_ne_bytes());
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend(body);
    netlink.write_all(&message)?;
    let mut attributes = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        let length = netlink.read(&mut buffer)?;
        let mut rest = &buffer[..length];
        while let Some((size, kind)) = rest.get(..6).map(|head| {
            let size = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
            (size, u16::from_ne_bytes([head[4], head[5]]))
        }) {
            let message = rest.get(..size).filter(|it| it.len() >= 20);
            let message = message.ok_or(io::ErrorKind::InvalidData)?;
            let error = i32::from_ne_bytes([message[16], message[17], message[18], message[19]]);
            match (kind, error) {
                (ERROR, 0) => return Ok(attributes),
                (ERROR, error) => return Err(io::Error::from_raw_os_error(-error)),
                _ => attributes.extend(&message[20..]),
            }
            rest = &rest[size.next_multiple_of(4).min(rest.len())..];
        }
    }
}

/// The value of the attribute of this kind.
fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let head = attributes.get(..4)?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let value = attributes.get(4..length)?;
        if u16::from_ne_bytes([head[2], head[3]]) == kind {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::{attribute, find};

    #[test]
    fn attributes_are_found_by_their_kinds() {
        let all = [attribute(7, b"abc"), attribute(1, &[5, 6])].concat();
        assert_eq!(all.len(), 16);
        assert_eq!(find(&all, 1), Some(&[5, 6][..]));
        assert_eq!(find(&all, 7), Some(&b"abc"[..]));
        assert_eq!((find(&all, 2), find(&all[..3], 7)), (None, None));
    }
}
