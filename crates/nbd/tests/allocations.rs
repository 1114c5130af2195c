//! Once a connection is warm, requests take nothing from the heap.

mod common;

use common::*;
use testkit::CountingHeap;

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

fn round(client: &mut Client, style: Style) {
    for page in 0..16 {
        assert_eq!(client.write(0, page * PAGE, &[page as u8; 4096]), 0);
    }
    assert_eq!(client.command(0, TRIM, 3 * PAGE, 4096), 0);
    assert_eq!(client.command(NO_HOLE, WRITE_ZEROES, 5 * PAGE, 4096), 0);
    assert_eq!(client.command(0, FLUSH, 0, 0), 0);
    if style == Style::Simple {
        client.read(0, 16 * 4096).unwrap();
        assert_eq!(client.read(u64::MAX, 1), Err(EINVAL));
    } else {
        client.read_chunks(0, 0, 16 * 4096).unwrap();
        client.read_chunks(DF, 0, 16 * 4096).unwrap();
        // Errors with their messages as well.
        assert_eq!(client.read_chunks(0, u64::MAX, 1), Err(EINVAL));
        assert_eq!(client.status(0, 0, 16 * 4096).unwrap().len(), 6);
    }
    assert_eq!(client.write(0, u64::MAX, &[1; 4096]), ENOSPC);
}

#[test]
fn requests_allocate_nothing() {
    CountingHeap::count_this_thread(false);
    CountingHeap::count_others();
    for style in [Style::Simple, Style::Allocation] {
        let before = CountingHeap::calls();
        let mut client = Client::connected(plain(16 * 4096), style);
        round(&mut client, style);
        let warm = CountingHeap::calls();
        assert!(warm > before, "the counter counts");
        // What ends or begins beside it, as the harness and the last connection, may be counted
        // once; what a request allocates is counted each time.
        let grown = (0..5).map(|_| {
            let before = CountingHeap::calls();
            (0..50).for_each(|_| round(&mut client, style));
            CountingHeap::calls() - before
        });
        let grown: Vec<_> = grown.take_while(|grown| *grown > 0).collect();
        assert!(grown.len() < 5, "{style:?}: {grown:?} in 50 rounds");
    }
}
