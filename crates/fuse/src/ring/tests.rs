use std::fs::{File, OpenOptions};
use std::sync::Arc;

use super::plan::Part;
use super::{APART, ENTRY, Entry, Event, Ring, Shape, command, deal};

const SHAPE: Shape = Shape { largest: 8192, page: 4096, present: true };

/// The entries of one part for these queues.
fn entries(queues: &[u16]) -> Vec<Entry> {
    let parts = [Part { cpu: None, queues: queues.to_vec() }];
    deal(&parts, SHAPE).unwrap().remove(0)
}

/// Opens a file as the connection of a ring with three entries.
fn refusal(path: &str) -> Option<i32> {
    let mailbox = host::Mailbox::<()>::new(1).unwrap();
    let mut ring = Ring::new(entries(&[0, 0, 1]), 3, mailbox.wake().clone()).unwrap();
    let channel: File = OpenOptions::new().read(true).write(true).open(path).unwrap();
    ring.begin(Arc::new(channel)).unwrap_err().raw_os_error()
}

#[test]
fn a_refused_entry_is_an_error_of_the_beginning() {
    // A file takes no commands.
    let directory = testkit::TempDir::new();
    let file = directory.join("file");
    File::create(&file).unwrap();
    assert_eq!(refusal(file.to_str().unwrap()), Some(libc::EOPNOTSUPP));
    if testkit::met("a_refused_entry_is_an_error_of_the_beginning", &[testkit::Need::Fuse]) {
        // Nothing is mounted.
        assert!(refusal("/dev/fuse").is_some());
    }
}

#[test]
fn entries_have_their_own_memory() {
    let parts = [&[0, 5, 5][..], &[1, 1]].map(|it| Part { cpu: None, queues: it.to_vec() });
    let dealt = deal(&parts, SHAPE).unwrap();
    assert_eq!(dealt.iter().map(Vec::len).collect::<Vec<_>>(), [3, 2]);
    let mut seen = Vec::new();
    for (n, mut entry) in dealt.into_iter().flatten().enumerate() {
        assert_eq!((usize::from(entry.number), entry.home()), (n, n / 3));
        let (header, data) = entry.parts();
        assert_eq!((header.len(), data.len()), (ENTRY, 8192));
        assert!((data.as_ptr() as usize).is_multiple_of(4096));
        let (header, data) = (header.as_ptr() as usize, data.as_ptr() as usize);
        seen.extend([header..header + APART, data..data + 8192]);
    }
    seen.sort_by_key(|range| range.start);
    assert!(seen.windows(2).all(|pair| pair[0].end <= pair[1].start), "{seen:?}");
}

/// What is asked of the kernel, by its numbers.
#[test]
fn a_command_names_the_request_and_its_queue() {
    let command = command(&entries(&[0, 5, 5])[1], 0x0102_0304);
    assert_eq!(command[..8], [0; 8]);
    assert_eq!(command[8..16], 0x0102_0304u64.to_ne_bytes());
    assert_eq!(command[16..18], 5u16.to_ne_bytes());
    assert_eq!(command[18..], [0; 62]);
}

#[test]
fn a_write_to_the_wake_up_wakes() {
    let mailbox = host::Mailbox::<()>::new(1).unwrap();
    assert!(deal(&[], SHAPE).is_err(), "without entries there is nothing to serve");
    let mut ring = Ring::new(entries(&[0]), 1, mailbox.wake().clone()).unwrap();
    assert!(ring.is_live());
    ring.uring.submitter().register_enable_rings().unwrap();
    ring.rearm();
    mailbox.send(());
    ring.wait();
    assert!(matches!(ring.next(), Some(Event::Wake)));
    mailbox.woken();
    assert!(ring.next().is_none());
}
