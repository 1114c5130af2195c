//! Reads the configuration of zram-generator (zram-generator.conf(5)) as one of rampack. Pure.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use host::printable;
use service::engine::ALGORITHMS;
use service::filesystem::kind;
use units::evaluate_size;

/// What became of it.
#[derive(PartialEq, Eq, Debug)]
pub struct Imported {
    /// The text of a rampack.toml. What has no counterpart is a comment in it.
    pub text: String,
    /// The same, for the user.
    pub without: Vec<String>,
    /// Whether there is a device.
    pub has_devices: bool,
}

/// A value, and its file and line.
struct Found {
    value: String,
    at: String,
}

/// The options of a device, by their names; a later one counts.
type Device = BTreeMap<String, Found>;

/// The devices of `texts`, in the order in which zram-generator reads them.
#[must_use]
pub fn import(texts: &[(PathBuf, String)]) -> Imported {
    let mut devices: BTreeMap<u32, Device> = BTreeMap::new();
    let mut without = Vec::new();
    for (path, text) in texts {
        let mut section: Option<u32> = None;
        for (line, text) in (1..).zip(text.lines()) {
            let (at, text) = (format!("{}:{line}", path.display()), text.trim());
            if text.is_empty() || text.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = text.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
                section = name.strip_prefix("zram").and_then(|number| number.parse().ok());
                match section {
                    Some(number) => _ = devices.entry(number).or_default(),
                    None => without.push(format!("{at}: [{name}] is of no zram device")),
                }
                continue;
            }
            let Some((key, value)) = text.split_once('=') else {
                without.push(format!("{at}: {text:?} is neither a section nor an option"));
                continue;
            };
            let (key, value) = (key.trim(), unquoted(value.trim()));
            match section.and_then(|number| devices.get_mut(&number)) {
                Some(device) => {
                    device.insert(key.to_owned(), Found { value: value.to_owned(), at });
                }
                None if key.starts_with("set!") => without.push(format!(
                    "{at}: {key} runs a program for its value, which nothing here does; write the \
                     value itself"
                )),
                None => without.push(format!("{at}: {key} is outside of a section of zram")),
            }
        }
    }
    let has_devices = !devices.is_empty();
    let mut text = String::from("# From zram-generator.\n");
    for (number, device) in devices {
        text += &Section::default().of(number, device, &mut without);
    }
    without.iter_mut().for_each(|note| *note = printable(&*note));
    for (at, note) in without.iter().enumerate() {
        let _ = writeln!(text, "{}# {note}", if at == 0 { "\n" } else { "" });
    }
    Imported { text, without, has_devices }
}

fn unquoted(value: &str) -> &str {
    let inner = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

/// The section that is written.
#[derive(Default)]
struct Section {
    keys: Vec<(&'static str, String)>,
    notes: Vec<String>,
}

impl Section {
    fn of(mut self, number: u32, mut from: Device, without: &mut Vec<String>) -> String {
        let fs = from.remove("fs-type").filter(|it| it.value != "swap");
        let mount = from.remove("mount-point");
        let is_swap = fs.is_none() && mount.is_none();
        self.size(&mut from);
        if let Some(limit) = from.remove("zram-resident-limit") {
            match bytes_of(&limit.value) {
                Ok(text) if text != "0M" => self.key("memory", &text),
                Ok(_) => {}
                Err(why) => self.note(&limit, "zram-resident-limit", &why),
            }
        }
        if let Some(list) = from.remove("compression-algorithm") {
            self.algorithms(&list, is_swap);
        }
        if let Some(device) = from.remove("writeback-device") {
            self.key("backing", &device.value);
        }
        if let Some(priority) = from.remove("swap-priority") {
            match priority.value.parse::<i32>() {
                Ok(number) if is_swap => self.keys.push(("priority", number.to_string())),
                Ok(_) => {}
                Err(_) => self.note(&priority, "swap-priority", "it is no number"),
            }
        }
        if let Some(mount) = &mount {
            self.key("mount", &mount.value);
        }
        match (&fs, &mount) {
            (Some(fs), _) if kind(&fs.value).is_ok() => self.key("fs", &fs.value),
            (Some(fs), _) => {
                let known: Vec<&str> =
                    service::filesystem::KINDS.iter().map(|kind| kind.name).collect();
                let why = format!("there are {}, of which ext4 is made", known.join(" "));
                self.note(fs, "fs-type", &why);
                self.key("fs", "ext4");
            }
            (None, Some(_)) => self.key("fs", "ext2"),
            (None, None) => {}
        }
        if let Some(options) = from.remove("options").filter(|it| it.value != "discard") {
            self.note(&options, "options", "a device is always mounted with discard alone");
        }
        for name in ["host-memory-limit", "memory-limit"] {
            if let Some(limit) = from.remove(name).filter(|it| it.value != "none") {
                let why = "a device is made on every machine that has the file; leave the file \
                           out where there is more memory";
                self.note(&limit, name, why);
            }
        }
        for (name, found) in &from {
            self.note(found, name, "zram-generator has no such option");
        }
        let kind = if is_swap { "swap" } else { "zram" };
        let mut text = format!("\n[{kind}{number}]\n");
        for (key, value) in &self.keys {
            let _ = writeln!(text, "{key} = {value}");
        }
        without.append(&mut self.notes);
        text
    }

    /// A key with text as its value.
    fn key(&mut self, key: &'static str, value: &str) {
        let mut text = String::from("\"");
        for c in value.chars() {
            match c {
                '"' | '\\' => text.extend(['\\', c]),
                c if c.is_control() => _ = write!(text, "\\u{:04X}", u32::from(c)),
                c => text.push(c),
            }
        }
        self.keys.push((key, text + "\""));
    }

    fn note(&mut self, found: &Found, key: &str, why: &str) {
        self.without(found, &format!("{key}={}", found.value), why);
    }

    fn without(&mut self, found: &Found, what: &str, why: &str) {
        self.notes.push(format!("{}: {what} has no counterpart: {why}", found.at));
    }

    fn size(&mut self, from: &mut Device) {
        const USUAL: &str = "min(ram / 2, 4096M)";
        let (size, fraction) = (from.remove("zram-size"), from.remove("zram-fraction"));
        let most = from.remove("max-zram-size");
        if fraction.is_none() && most.is_none() {
            let bytes = size.as_ref().map_or(Ok(USUAL.to_owned()), |size| bytes_of(&size.value));
            if let (Some(size), Err(why)) = (&size, &bytes) {
                self.note(size, "zram-size", &format!("{why}; {USUAL} is taken"));
            }
            return self.key("size", bytes.as_deref().unwrap_or(USUAL));
        }
        let part = match &fraction {
            None => "ram * 0.5".to_owned(),
            Some(found) => match found.value.parse::<f64>() {
                // Without an exponent, whatever form it has there.
                Ok(number) if number >= 0.0 && number.is_finite() => format!("ram * {number}"),
                _ => {
                    self.note(found, "zram-fraction", "it is no number; 0.5 is taken");
                    "ram * 0.5".to_owned()
                }
            },
        };
        match &most {
            Some(found) if found.value.parse::<u64>().is_ok() => {
                self.key("size", &format!("min({part}, {}M)", found.value));
            }
            Some(found) if found.value != "none" => {
                self.note(found, "max-zram-size", "it is no number of megabytes");
                self.key("size", &part);
            }
            _ => self.key("size", &part),
        }
    }

    fn algorithms(&mut self, list: &Found, is_swap: bool) {
        const KEY: &str = "compression-algorithm";
        let (mut at, mut rest) = (0, list.value.trim());
        while !rest.is_empty() {
            let end = rest.find(|c: char| c.is_whitespace() || c == '(').unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            // Parameters behind a space are of no algorithm.
            let inside = after.strip_prefix('(').and_then(|it| it.split_once(')'));
            let (parameters, after) = inside.unwrap_or(("", after));
            rest = after.trim_start();
            if name.is_empty() && inside.is_none() {
                return self.note(list, KEY, "a parenthesis is not closed");
            }
            let written = match inside {
                Some(_) => format!("{name}({parameters}) of {KEY}"),
                None => format!("{name} of {KEY}"),
            };
            if name.is_empty() {
                let why = "when pages are compressed again is decided by auto and its options";
                self.without(list, &written, why);
                continue;
            }
            if !ALGORITHMS.contains(&name) {
                let why = format!("there are: {}", ALGORITHMS.join(" "));
                self.without(list, &written, &why);
                continue;
            }
            at += 1;
            match (at, is_swap) {
                (1, _) => self.key("algorithm", name),
                (2, false) => self.key("recompress-with", name),
                (_, true) => {
                    let why = "old pages are compressed again with zstd (auto)";
                    self.without(list, &written, why);
                    continue;
                }
                _ => {
                    self.without(list, &written, "pages are compressed again with one algorithm");
                    continue;
                }
            }
            let level = parameters.trim().strip_prefix("level=");
            match level.and_then(|it| it.parse::<i32>().ok()) {
                Some(level) if at == 1 && !is_swap => self.keys.push(("level", level.to_string())),
                None if parameters.trim().is_empty() => {}
                _ if is_swap => {
                    self.without(
                        list,
                        &written,
                        "the algorithm of a swap device has no parameters",
                    );
                }
                _ => {
                    let why = "write its parameters as the attribute algorithm_params";
                    self.without(list, &written, why);
                }
            }
        }
    }
}

/// The expression in bytes for one in megabytes, of the grammar of zram-generator (fasteval).
fn bytes_of(text: &str) -> Result<String, String> {
    let bytes = in_bytes(text.trim());
    // Any memory does: it tells whether there is a counterpart.
    match evaluate_size(&bytes, || 64 << 30) {
        Ok(_) => Ok(bytes),
        Err(_) => Err("only numbers, ram, min, max, + - * / and parentheses are known here".into()),
    }
}

fn in_bytes(text: &str) -> String {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if is_number(text) {
        return format!("{text}M");
    }
    if let Some(rest) = text.strip_prefix("ram") {
        let scaled = rest.trim_start().strip_prefix(['*', '/']).map(str::trim_start);
        if rest.is_empty() || scaled.is_some_and(|by| by.parse::<f64>().is_ok()) {
            return text.to_owned();
        }
    }
    for name in ["min", "max"] {
        let inside = text.strip_prefix(name).and_then(|it| it.trim_start().strip_prefix('('));
        if let Some(parts) = inside.and_then(|it| it.strip_suffix(')')).and_then(parts) {
            let parts: Vec<String> = parts.into_iter().map(in_bytes).collect();
            return format!("{name}({})", parts.join(", "));
        }
    }
    // Any other: as it is, with the memory in megabytes.
    let mut counted = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("ram") {
        let (before, after) = rest.split_at(at);
        let is_word = before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
            || after[3..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
        counted += before;
        counted += if is_word { "ram" } else { "(ram / 1M)" };
        rest = &after[3..];
    }
    format!("({counted}{rest}) * 1M")
}

/// The parts of a list between commas; `None` if the text is more than one list in parentheses.
fn parts(text: &str) -> Option<Vec<&str>> {
    let (mut depth, mut begin, mut found) = (0_u32, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                found.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.push(text[begin..].trim());
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_may_have_any_form() {
        for (from, to) in [(".25", "0.25"), ("5e-1", "0.5"), ("1.50", "1.5"), ("inf", "0.5")] {
            let text = format!("[zram0]\nzram-fraction = {from}\n");
            let Imported { text, .. } = import(&[("f".into(), text)]);
            assert!(text.contains(&format!("size = \"ram * {to}\"\n")), "{text}");
        }
    }

    #[test]
    fn sizes_are_in_bytes() {
        for (from, to) in [
            ("4096", "4096M"),
            ("ram / 2", "ram / 2"),
            ("ram*0.5", "ram*0.5"),
            ("min(ram / 2, 4096)", "min(ram / 2, 4096M)"),
            ("min(ram, 4096) + 1", "(min((ram / 1M), 4096) + 1) * 1M"),
            (
                "min(min(ram, 4096) + max(ram - 4096, 0) / 2, 32 * 1024)",
                "min((min((ram / 1M), 4096) + max((ram / 1M) - 4096, 0) / 2) * 1M, (32 * 1024) * 1M)",
            ),
        ] {
            assert_eq!(bytes_of(from).as_deref(), Ok(to), "{from}");
            let ram = 6_u64 << 30;
            let of = |text: &str, ram: u64| evaluate_size(text, || ram).unwrap();
            assert_eq!(of(to, ram), of(from, ram >> 20) << 20, "{from}");
        }
        for none in ["ram ^ 2", "log(ram)", "floor(ram / 2)", "program", "", "1e3"] {
            assert!(bytes_of(none).is_err(), "{none}");
        }
    }
}
