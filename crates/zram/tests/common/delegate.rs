//! What a `PageStore` in front of another one passes on as it is.

/// The methods of a `PageStore` with a field `engine` that say nothing of their own.
macro_rules! to_engine {
    () => {
        fn unpack(
            &self,
            reader: &Reader<'_>,
            cpu: Cpu,
            place: Backed,
            bytes: &Page,
            page: &mut Page,
        ) -> Result<(), IoError> {
            self.engine.unpack(reader, cpu, place, bytes, page)
        }
        fn discard(&self, reader: &Reader<'_>, cpu: Cpu, first: usize, count: usize) {
            self.engine.discard(reader, cpu, first, count);
        }
        fn store_zeroes(&self, cpu: Cpu, index: usize) {
            self.engine.store_zeroes(cpu, index);
        }
        fn extents(&self, first: usize, count: usize, visit: Visit<'_>) {
            self.engine.extents(first, count, visit);
        }
        fn peek(&self, index: usize) -> Slot {
            self.engine.peek(index)
        }
        fn next_touched(&self, from: usize, end: usize) -> usize {
            self.engine.next_touched(from, end)
        }
        fn alter(&self, index: usize, next: &mut dyn FnMut(Slot) -> Option<Slot>) -> bool {
            self.engine.alter(index, next)
        }
        fn finish_writeback(
            &self,
            reader: &Reader<'_>,
            cpu: Cpu,
            index: usize,
            place: Backed,
        ) -> bool {
            self.engine.finish_writeback(reader, cpu, index, place)
        }
        fn install(&self, priority: u8, chosen: Chosen, pages: usize) -> Result<(), Fault> {
            self.engine.install(priority, chosen, pages)
        }
        fn priority_of(&self, reader: &Reader<'_>, codec: u8) -> u8 {
            self.engine.priority_of(reader, codec)
        }
        fn limit_streams(&self, reader: &Reader<'_>, count: usize) -> Result<(), OneStream> {
            self.engine.limit_streams(reader, count)
        }
        fn last_access(&self, index: usize) -> Option<u32> {
            self.engine.last_access(index)
        }
        fn pool(&self) -> &Pool {
            self.engine.pool()
        }
        fn give_back(&self, cpu: Cpu) {
            self.engine.give_back(cpu);
        }
        fn capacity(&self) -> usize {
            self.engine.capacity()
        }
        fn table_bytes(&self, pages: usize) -> u64 {
            self.engine.table_bytes(pages)
        }
        fn scheme(&self) -> &'static str {
            self.engine.scheme()
        }
        fn streams(&self, reader: &Reader<'_>) -> usize {
            self.engine.streams(reader)
        }
    };
}

pub(crate) use to_engine;
