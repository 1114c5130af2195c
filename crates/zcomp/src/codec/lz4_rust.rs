//! lz4 in safe Rust, by `lz4_flex`, for builds without a C compiler. It reads what liblz4 writes,
//! and liblz4 what it writes.

use alloc::{boxed::Box, vec::Vec};

use lz4_flex::block::get_maximum_output_size;
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into};
use units::{PAGE_SIZE, Page};

use super::judge::{level_within, no_window, out_of_memory};
use super::names::LZ4 as NAME;
use crate::{Block, CodecError, Compressor, Context, Corrupt, Params};

/// The lz4 codec. It has one level, and takes no dictionary.
#[derive(Clone)]
pub struct Lz4;

impl Lz4 {
    /// Makes the codec.
    ///
    /// # Errors
    /// An acceleration but 1, a dictionary, window bits.
    pub fn new(params: &Params) -> Result<Lz4, CodecError> {
        level_within(NAME, "acceleration (this build has lz4 in Rust)", params, 1, 1..=1)?;
        no_window(NAME, params)?;
        match params.dictionary {
            None => Ok(Lz4),
            Some(_) => {
                let message = "lz4: takes no dictionary in this build, which has lz4 in Rust";
                Err(CodecError(message.into()))
            }
        }
    }
}

impl Compressor for Lz4 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn context(&self) -> Result<Box<dyn Context>, CodecError> {
        Ok(Box::new(Lz4Context::new(PAGE_SIZE, CompressTable::small())?))
    }

    fn block(&self, most: usize) -> Result<Option<Box<dyn Block>>, CodecError> {
        Ok(Some(Box::new(Lz4Context::new(most, CompressTable::large())?)))
    }

    fn decompress_bare(&self, bytes: &[u8], page: &mut Page) -> Option<Result<(), Corrupt>> {
        Some(decompress(bytes, page))
    }
}

struct Lz4Context {
    table: CompressTable,
    /// Where the library finds room for any page or block.
    room: Vec<u8>,
}

impl Lz4Context {
    fn new(most: usize, table: CompressTable) -> Result<Lz4Context, CodecError> {
        let (mut room, bytes) = (Vec::new(), get_maximum_output_size(most));
        room.try_reserve_exact(bytes).map_err(|_| out_of_memory(NAME))?;
        room.resize(bytes, 0);
        Ok(Lz4Context { table, room })
    }
}

impl Context for Lz4Context {
    fn compress(&mut self, page: &Page, into: &mut [u8]) -> Option<usize> {
        Block::compress(self, page, into)
    }

    fn decompress(&mut self, bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
        decompress(bytes, page)
    }
}

impl Block for Lz4Context {
    fn compress(&mut self, bytes: &[u8], into: &mut [u8]) -> Option<usize> {
        let length = compress_into_with_table(bytes, &mut self.room, &mut self.table).ok()?;
        into.get_mut(..length)?.copy_from_slice(&self.room[..length]);
        Some(length)
    }

    fn decompress(&mut self, bytes: &[u8], into: &mut [u8]) -> Result<(), Corrupt> {
        decompress(bytes, into)
    }
}

fn decompress(bytes: &[u8], into: &mut [u8]) -> Result<(), Corrupt> {
    match decompress_into(bytes, into) {
        Ok(length) if length == into.len() => Ok(()),
        _ => Err(Corrupt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_back_and_damage_is_refused() {
        let codec = Lz4::new(&Params::default()).unwrap();
        let mut context = codec.context().unwrap();
        let (mut into, mut back) = ([0; PAGE_SIZE], [0; PAGE_SIZE]);
        let mut random = fastrand::Rng::with_seed(testkit::seed("lz4_rust"));
        for noise in [0, 100, 2000, PAGE_SIZE] {
            let mut page = core::array::from_fn(|n| (n / 32) as u8);
            random.fill(&mut page[..noise]);
            let Some(length) = context.compress(&page, &mut into) else {
                assert_eq!(noise, PAGE_SIZE, "it shrinks");
                continue;
            };
            assert_eq!(context.decompress(&into[..length], &mut back), Ok(()));
            assert_eq!(back, page);
            assert_eq!(codec.decompress_bare(&into[..length - 1], &mut back), Some(Err(Corrupt)));
            assert_eq!(context.compress(&page, &mut into[..length - 1]), None, "no room");
            for _ in 0..1000 {
                let mut damaged = into;
                damaged[random.usize(..length)] = random.u8(..);
                let _ = context.decompress(&damaged[..length], &mut back);
            }
        }
    }

    #[test]
    fn blocks_of_any_length_come_back() {
        let codec = Lz4::new(&Params::default()).unwrap();
        let mut state = codec.block(1 << 16).unwrap().unwrap();
        let (mut into, mut back) = (alloc::vec![0; 1 << 17], alloc::vec![0; 1 << 16]);
        for length in [1, 100, 4097, 16_384, 1 << 16] {
            let block: Vec<u8> = (0..length).map(|n| (n / 32) as u8 ^ (n % 7) as u8).collect();
            let bytes = state.compress(&block, &mut into).unwrap();
            assert_eq!(state.decompress(&into[..bytes], &mut back[..length]), Ok(()));
            assert_eq!(back[..length], block);
            assert_eq!(state.decompress(&into[..bytes], &mut back[..length - 1]), Err(Corrupt));
            assert_eq!(state.compress(&block, &mut into[..bytes - 1]), None, "no room");
        }
    }

    #[test]
    fn parameters_of_the_other_lz4_are_refused() {
        assert!(Lz4::new(&Params::at_level(2)).is_err());
        let dictionary = Some(alloc::sync::Arc::from([0_u8; 64]));
        assert!(Lz4::new(&Params { dictionary, ..Params::default() }).is_err());
    }
}
