//! What is at both ends of a file or device that somebody wants to put below swap space.

use service::swap::contents::{Contents, END, contents};

const PAGE: usize = 4096;

/// The superblocks that live beside an empty first page, and where: bytes from the start, bytes
/// from the end, or the last 64 KiB with 64 KiB behind it (libblkid(3)).
const MD: [u8; 4] = [0xfc, 0x4e, 0x2b, 0xa9];
const GPT: &[u8] = b"EFI PART";
const SWAP: &[u8] = b"SWAPSPACE2";

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// The ends of a store, as changes of one that is empty. The first two bytes choose its size, then
/// each change has a kind, a place and bytes.
///
/// A store is free only if it is zero but for a swap header, or bears the label of ours. One with a
/// known superblock never is.
pub fn swap_contents(input: &[u8]) {
    let [size, odd, changes @ ..] = input else { return };
    // Most stores are so small that both ends are the whole.
    let bytes = match size {
        0 => 3 << 20,
        size => usize::from(*size) * 2048 + usize::from(*odd),
    };
    let mut store = vec![0; bytes];
    for change in changes.chunks(8) {
        let [kind, high, low, data @ ..] = change else { break };
        let at = usize::from(u16::from_be_bytes([*high, *low])) * 8;
        let (at, data) = match kind % 8 {
            0 => (at, data),
            1 => (bytes.saturating_sub(at + 1), data),
            2 => (PAGE - SWAP.len(), SWAP),
            3 => (1024, &[1u8, 0, 0, 0][..]),
            4 => (1024 + 28, b"rampack backing".as_slice()),
            5 => (PAGE, MD.as_slice()),
            6 => (bytes.saturating_sub(8 << 10), MD.as_slice()),
            _ => (512, GPT),
        };
        let at = at.min(bytes);
        store[at..].iter_mut().zip(data).for_each(|(old, new)| *old = *new);
    }
    let end = bytes.min(END);
    let (first, last) = (&store[..end], &store[bytes - end..]);
    let found = contents(bytes as u64, first, last);
    let there = |at: usize, magic: &[u8]| store.get(at..).is_some_and(|it| it.starts_with(magic));
    let known = there(PAGE, &MD) || there(512, GPT) || (bytes >= 8192 && there(bytes - 8192, &MD));
    match found {
        Contents::Nothing | Contents::Ours => {
            assert!(!known, "{found:?}, and there is a superblock");
            assert!(bytes >= PAGE, "{found:?} in {bytes} bytes");
            if found == Contents::Nothing {
                let rest_is_zero =
                    is_zero(&first[PAGE..]) && is_zero(&last[last.len().min(PAGE)..]);
                assert!(rest_is_zero, "something would be overwritten");
                let page = &store[..PAGE];
                assert!(is_zero(page) || page.ends_with(SWAP), "the first page has data");
            } else {
                assert!(there(PAGE - SWAP.len(), SWAP) && there(1024 + 28, b"rampack"));
            }
        }
        Contents::SwapSpace => assert!(there(PAGE - SWAP.len(), SWAP)),
        Contents::Known(name) => assert!(!name.is_empty()),
        Contents::Data => assert!(!is_zero(&store) || bytes < PAGE, "an empty store is refused"),
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let header = [2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
    let label = [4, 0, 0, 0, 0, 0, 0, 0];
    let store = |size: u8, changes: &[&[u8]]| [&[size, 0], &changes.concat()[..]].concat();
    vec![
        store(40, &[]),
        store(40, &[&header]),
        store(9, &[&header, &label]),
        store(0, &[&header, &label]),
        store(77, &[&[5, 0, 0, 0, 0, 0, 0, 0]]),
        store(200, &[&[6, 0, 0, 0, 0, 0, 0, 0], &header, &label]),
        store(30, &[&[7, 0, 0, 0, 0, 0, 0, 0]]),
        store(1, &[&[0, 0, 9, 1, 2, 3, 4, 5]]),
        store(255, &[&[1, 0, 9, 1, 2, 3, 4, 5]]),
    ]
}
