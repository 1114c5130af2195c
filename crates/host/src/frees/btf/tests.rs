use testkit::{Need, Rng, met, seed};

use super::*;

/// Writes a description.
#[derive(Default)]
struct Writer {
    types: Vec<u8>,
    names: Vec<u8>,
    count: u32,
}

impl Writer {
    fn new() -> Writer {
        Writer { names: vec![0], ..Writer::default() }
    }

    /// A type; returns its number.
    fn add(&mut self, name: &str, (kind, count): (u32, u32), size: u32, rest: &[u32]) -> u32 {
        let at = self.names.len() as u32;
        self.names.extend(name.bytes().chain([0]));
        let words = [at, kind << 24 | count, size].into_iter().chain(rest.iter().copied());
        words.for_each(|word| self.types.extend(word.to_ne_bytes()));
        self.count += 1;
        self.count
    }

    fn function(&mut self, name: &str, returns: u32, parameters: &[u32]) {
        let rest: Vec<u32> = parameters.iter().flat_map(|number| [0, *number]).collect();
        let count = parameters.len() as u32;
        let prototype = self.add("", (kind::FUNC_PROTO, count), returns, &rest);
        self.add(name, (kind::FUNC, 0), prototype, &[]);
    }

    fn bytes(&self) -> Vec<u8> {
        let (types, names) = (self.types.len() as u32, self.names.len() as u32);
        let header = [MAGIC | 1 << 16, HEADER as u32, 0, types, types, names];
        let header = header.into_iter().flat_map(u32::to_ne_bytes);
        header.chain(self.types.iter().copied()).chain(self.names.iter().copied()).collect()
    }
}

/// Functions as kernels have them, and some that are none of theirs.
fn written() -> Vec<u8> {
    let mut all = Writer::new();
    let long = all.add("unsigned long", (kind::INT, 0), 8, &[64]);
    let int = all.add("unsigned int", (kind::INT, 0), 4, &[32]);
    let entry = all.add("", (kind::STRUCT, 1), 8, &[0, long, 0]);
    let entry = all.add("swp_entry_t", (kind::TYPEDEF, 0), entry, &[]);
    let constant = all.add("", (kind::CONST, 0), entry, &[]);
    let area = all.add("swap_info_struct", (kind::STRUCT, 0), 400, &[]);
    let pointer = all.add("", (kind::PTR, 0), area, &[]);
    let looped = all.count + 1;
    all.add("looped", (kind::TYPEDEF, 0), looped, &[]);
    all.function("zswap_invalidate", 0, &[entry]);
    all.function("swap_entry_range_free", 0, &[pointer, constant, int]);
    all.function("older", 0, &[int, long]);
    all.function("large", 0, &[area, entry]);
    all.function("returns_large", area, &[entry]);
    all.function("endless", 0, &[looped, 4711]);
    all.function("twice", 0, &[entry]);
    all.function("twice", 0, &[int]);
    all.add("no_prototype", (kind::FUNC, 0), long, &[]);
    all.bytes()
}

const NAMES: [&str; 9] = [
    "zswap_invalidate",
    "swap_entry_range_free",
    "older",
    "large",
    "returns_large",
    "endless",
    "twice",
    "no_prototype",
    "none",
];

#[test]
fn parameters_are_found() {
    use Parameter::{Entry, Integer, Other, Unknown};
    let bytes = written();
    let btf = Btf::read(&bytes).unwrap();
    let found = NAMES.map(|name| btf.function(name));
    let right = [
        Some(vec![Entry]),
        Some(vec![Other, Entry, Integer(4)]),
        Some(vec![Integer(4), Integer(8)]),
        Some(vec![Unknown, Entry]),
        None,
        Some(vec![Unknown, Unknown]),
        None,
        None,
        None,
    ];
    assert_eq!(found, right);
}

#[test]
fn what_is_wrong_or_cut_off_is_no_description() {
    let bytes = written();
    for end in 0..bytes.len() {
        if let Some(btf) = Btf::read(&bytes[..end]) {
            NAMES.iter().for_each(|name| drop(btf.function(name)));
        }
    }
    let mut rng = Rng::new(seed("what_is_wrong_or_cut_off_is_no_description"));
    for _ in 0..20_000 {
        let mut bytes = bytes.clone();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u64() as u8;
        }
        if let Some(btf) = Btf::read(&bytes) {
            NAMES.iter().for_each(|name| drop(btf.function(name)));
        }
    }
}

#[test]
fn this_kernel_describes_itself() {
    let file = std::fs::read("/sys/kernel/btf/vmlinux");
    let what = "a kernel with BTF (CONFIG_DEBUG_INFO_BTF)";
    if !met("this_kernel_describes_itself", &[Need::other(file.is_ok(), what)]) {
        return;
    }
    let bytes = file.unwrap();
    let btf = Btf::read(&bytes).unwrap();
    assert!(btf.types.len() > 1000, "{} types", btf.types.len());
    // It has had these parameters since it was made.
    let right = vec![Parameter::Integer(4), Parameter::Other, Parameter::Integer(8)];
    assert_eq!(btf.function("ksys_write"), Some(right));
}
