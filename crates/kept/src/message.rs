//! The messages of sd_notify(3) about descriptors.

/// What a message asks of a service manager.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Message<'a> {
    /// Keep the descriptors that come with it.
    pub(crate) store: bool,
    /// Give up the descriptors of this name.
    pub(crate) remove: bool,
    /// The name of the descriptors.
    pub(crate) name: Option<&'a str>,
    /// Close the descriptor that comes with it when all messages before are carried out.
    pub(crate) barrier: bool,
    /// The sender has started.
    pub(crate) ready: bool,
    /// The sender ends on purpose.
    pub(crate) stopping: bool,
}

/// The name of descriptors that come without one (sd_pid_notify_with_fds(3)).
pub(crate) const NAMELESS: &str = "stored";

impl Message<'_> {
    /// Parses a message. Lines that it does not know are not its business.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Message<'_>> {
        let mut message = Message::default();
        for line in core::str::from_utf8(bytes).ok()?.split('\n') {
            match line.split_once('=').unwrap_or((line, "")) {
                ("FDSTORE", "1") => message.store = true,
                ("FDSTOREREMOVE", "1") => message.remove = true,
                ("FDNAME", name) => message.name = Some(name),
                ("BARRIER", "1") => message.barrier = true,
                ("READY", "1") => message.ready = true,
                ("STOPPING", "1") => message.stopping = true,
                _ => {}
            }
        }
        Some(message)
    }

    /// It concerns descriptors only.
    pub(crate) fn is_of_descriptors(&self) -> bool {
        self.store || self.remove || self.barrier
    }
}

/// Whether `name` may name a descriptor: visible ASCII characters but no colon, for the names of
/// several are joined by colons; no more of them than `most`.
pub(crate) fn is_name(name: &str, most: usize) -> bool {
    let visible = |byte: &u8| byte.is_ascii_graphic() && *byte != b':';
    (1..=most).contains(&name.len()) && name.as_bytes().iter().all(visible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_systemd() {
        let parsed = Message::parse(b"FDSTORE=1\nFDNAME=table\nFDPOLL=0").unwrap();
        assert_eq!(parsed, Message { store: true, name: Some("table"), ..Message::default() });
        let parsed = Message::parse(b"FDSTOREREMOVE=1\nFDNAME=table").unwrap();
        assert_eq!(parsed, Message { remove: true, name: Some("table"), ..Message::default() });
        let parsed = Message::parse(b"STATUS=up\nREADY=1\n").unwrap();
        assert_eq!(parsed, Message { ready: true, ..Message::default() });
        assert!(!parsed.is_of_descriptors());
        assert!(Message::parse(b"BARRIER=1").unwrap().barrier);
        assert!(Message::parse(b"STOPPING=1").unwrap().stopping);
        for text in ["", "FDSTORE=0", "FDSTORE", "READY=10", "=1", "\n\n"] {
            assert_eq!(Message::parse(text.as_bytes()), Some(Message::default()), "{text}");
        }
        assert_eq!(Message::parse(b"READY=1\n\xff"), None);
    }

    #[test]
    fn a_name_can_stand_in_a_list() {
        for name in ["a", "zram0/frames.1", &"x".repeat(64)] {
            assert!(is_name(name, 64), "{name}");
        }
        for name in ["", "a:b", "a b", "a\n", "\u{e4}", &"x".repeat(65)] {
            assert!(!is_name(name, 64), "{name}");
        }
    }
}
