//! The check of writeback: which pages leave the cache, and in which order.

use std::collections::BTreeSet;

use super::{Model, same};
use crate::swap::{Attempt, SwapPage};

impl Model {
    /// Checks the writeback since the last call, when `asked` pages were requested. The pages must
    /// be in the cache and be the oldest, and not too many writes may be under way. Returns the
    /// number of pages written and the number of failed writes.
    pub(super) fn written(&mut self, asked: u64) -> Result<(u64, u64), String> {
        let mut tried = Vec::new();
        for (number, area) in self.areas.iter().enumerate() {
            let most = area.device_below.most_writes();
            if most > u64::from(self.in_flight) {
                let limit = self.in_flight;
                return Err(format!("{most} writes are under way at once; the limit is {limit}"));
            }
            let attempts = area.device_below.attempts().into_iter();
            tried.extend(attempts.map(|a| (SwapPage { area: number, offset: a.page }, a)));
        }
        let oldest = self.queue.is_some().then(|| self.oldest(&tried, asked)).transpose();
        let (mut made, mut failed) = (0, 0);
        for (swap_page, attempt) in tried {
            let Some(held) = self.held.get(&swap_page) else {
                return Err(format!("{swap_page:?} is written back, and is not in the cache"));
            };
            same(held.fill, &attempt.contents)
                .map_err(|wrong| format!("{swap_page:?}, written back, {wrong}"))?;
            if !self.writeback[held.memcg] {
                let memcg = held.memcg;
                return Err(format!("{swap_page:?} of memcg {memcg} must not be written back"));
            }
            if attempt.made {
                self.drop_entry(swap_page);
                self.backed.insert(swap_page);
            }
            *(if attempt.made { &mut made } else { &mut failed }) += 1;
        }
        oldest?;
        self.written_back += made;
        self.failed_writes += failed;
        Ok((made, failed))
    }

    /// Checks that writeback tried the oldest pages, batch by batch. It must begin the next batch
    /// while the previous batch wrote any page and fewer pages than requested were written.
    fn oldest(&mut self, tried: &[(SwapPage, Attempt)], asked: u64) -> Result<(), String> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        let (mut rest, mut left) = (tried, asked);
        while left > 0 {
            let oldest = queue.take((left as usize).min(self.in_flight as usize));
            let size = rest.iter().take_while(|(_, a)| a.batch == rest[0].1.batch).count();
            let (batch, later) = rest.split_at(size);
            rest = later;
            let expected: BTreeSet<SwapPage> = oldest.into_iter().collect();
            let written: BTreeSet<SwapPage> =
                batch.iter().map(|(swap_page, _)| *swap_page).collect();
            if expected != written {
                return Err(format!("{written:?} were written back; the oldest were {expected:?}"));
            }
            let made: Vec<SwapPage> =
                batch.iter().filter(|(_, a)| a.made).map(|(swap_page, _)| *swap_page).collect();
            made.iter().for_each(|swap_page| queue.remove(*swap_page));
            left -= made.len() as u64;
            if made.is_empty() {
                break;
            }
        }
        match rest.is_empty() {
            true => Ok(()),
            false => Err(format!("more were written back than were asked for: {}", rest.len())),
        }
    }
}
