//! Makes the source of a big program without a purpose, as work for a compiler.

use std::fmt::Write;

const NOUNS: [&str; 24] = [
    "account", "buffer", "channel", "device", "entry", "frame", "group", "handle", "index", "job",
    "key", "list", "message", "node", "object", "packet", "queue", "record", "segment", "table",
    "unit", "vector", "window", "zone",
];
const VERBS: [&str; 16] = [
    "add", "build", "check", "copy", "drain", "encode", "find", "grow", "hash", "insert", "join",
    "load", "merge", "parse", "read", "sort",
];

/// C source with this many functions that work on structures.
pub fn c(functions: u64) -> String {
    let mut random = fastrand::Rng::with_seed(1);
    let mut text = String::new();
    for noun in NOUNS {
        let _ = writeln!(
            text,
            "struct {noun} {{ struct {noun} *next; long key; int size, used; double weight; \
             unsigned char name[{}]; }};",
            8 + random.u64(..48)
        );
    }
    for number in 0..functions {
        let (noun, verb) = (NOUNS[random.usize(..NOUNS.len())], VERBS[random.usize(..VERBS.len())]);
        let (a, b, c) = (random.u64(..97) + 1, random.u64(..1000), random.u64(..7) + 2);
        let _ = writeln!(
            text,
            "int {verb}_{noun}_{number}(struct {noun} *head, int limit) {{\n  \
               int total = {b};\n  struct {noun} *at;\n  \
               for (at = head; at && total < limit; at = at->next) {{\n    \
                 switch (at->size % {c}) {{\n    \
                   case 0: total += at->used * {a}; break;\n    \
                   case 1: at->weight *= 1.{b}; total -= (int)at->weight; break;\n    \
                   default: at->name[total & 7] ^= (unsigned char)({a} + at->key); }}\n    \
                 if (at->key > {b}) at->size += limit / {a};\n  }}"
        );
        if number > 0 {
            let _ =
                writeln!(text, "  if (total == {a}) printf_like(\"{verb} {noun} {b}\", total);");
        }
        let _ = writeln!(text, "  return total;\n}}");
        if number == 0 {
            text.push_str("extern int printf_like(const char *, ...);\n");
        }
    }
    text
}

/// Rust source with this many functions.
pub fn rust(functions: u64) -> String {
    let mut random = fastrand::Rng::with_seed(2);
    let mut text = String::from("#![allow(unused)]\nuse std::collections::HashMap;\n");
    for number in 0..functions {
        let (noun, verb) = (NOUNS[random.usize(..NOUNS.len())], VERBS[random.usize(..VERBS.len())]);
        let (a, b) = (random.u64(..97) + 1, random.u64(..1000));
        let _ = writeln!(
            text,
            "pub fn {verb}_{noun}_{number}(items: &[(u64, String)], limit: u64) \
                 -> HashMap<String, u64> {{\n    \
                 let mut found = HashMap::new();\n    \
                 for (key, name) in items.iter().filter(|(key, _)| key % {a} < limit) {{\n        \
                     let key_name = format!(\"{noun} {{name}}\");\n        \
                     let entry = found.entry(key_name).or_insert({b});\n        \
                     *entry = entry.wrapping_add(*key).rotate_left({});\n    }}\n    found\n}}",
            a % 63
        );
    }
    text
}
