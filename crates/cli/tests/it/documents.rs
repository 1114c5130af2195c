//! The commands of README and of docs/: each block of shell commands is run, or says above itself
//! why not and what shows it instead (`<!-- not run: … -->`). What is not run is at least a command
//! line that there is.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;
use testkit::{Need, TempDir, met};

use crate::common::program;

/// A block of commands.
struct Block {
    /// Its file, and the number of its first line.
    at: String,
    text: String,
    /// Why it is not run, if it is not.
    not_run: Option<String>,
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The blocks of shell commands of a file.
fn blocks(path: &str) -> Vec<Block> {
    let text = fs::read_to_string(top().join(path)).unwrap();
    let (mut blocks, mut above): (Vec<Block>, _) = (Vec::new(), "");
    let mut inside = false;
    for (number, line) in (1..).zip(text.lines()) {
        if inside {
            inside = line != "```";
            if inside {
                let block = blocks.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
        } else if line == "```sh" {
            inside = true;
            let reason =
                above.strip_prefix("<!-- not run: ").and_then(|it| it.strip_suffix(" -->"));
            let not_run = reason.map(str::to_string);
            blocks.push(Block {
                at: format!("{path}:{}", number + 1),
                text: String::new(),
                not_run,
            });
        }
        above = line;
    }
    assert!(!inside, "{path}: a block without an end");
    blocks
}

/// README and the files of docs/, without the data.
fn documents() -> Vec<String> {
    let mut found = vec!["README.md".to_string(), "CONTRIBUTING.md".to_string()];
    for directory in ["guide", "reference", "operating", "internals", "measuring"] {
        let directory = format!("docs/{directory}");
        for entry in fs::read_dir(top().join(&directory)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                found.push(format!("{directory}/{name}"));
            }
        }
    }
    found.sort();
    found
}

/// The commands of a block, each as its words: without comments, `sudo`, settings of variables and
/// redirections.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    for line in text.replace("\\\n", " ").lines() {
        let (mut word, mut quote, mut any) = (String::new(), None, false);
        for (at, c) in line.char_indices() {
            match (quote, c) {
                (Some(q), _) if c == q => quote = None,
                (None, '\'' | '"') => (quote, any) = (Some(c), true),
                (None, '#') if word.is_empty() && !any => break,
                (None, '&' | ';' | '|') if line[at..].starts_with([' ', '&', ';', '|']) => {}
                (None, ' ' | ';' | '&' | '|') => {
                    if any || !word.is_empty() {
                        commands.last_mut().unwrap().push(std::mem::take(&mut word));
                    }
                    any = false;
                    if c != ' ' {
                        commands.push(Vec::new());
                    }
                }
                _ => word.push(c),
            }
        }
        if any || !word.is_empty() {
            commands.last_mut().unwrap().push(word);
        }
        commands.push(Vec::new());
    }
    for command in &mut commands {
        let passed =
            |word: &String| *word == "sudo" || word.split('/').next().unwrap().contains('=');
        while command.first().is_some_and(passed) {
            command.remove(0);
        }
        command.retain(|word| !word.starts_with(['<', '>']));
    }
    commands.retain(|command| !command.is_empty());
    for word in commands.iter_mut().flatten().filter(|word| *word == "$$") {
        *word = "4711".into();
    }
    commands
}

/// The value of an option, and how often it is given.
fn values<'a>(command: &'a [String], option: &str) -> Vec<&'a str> {
    let at = command.iter().enumerate().filter(|(_, word)| *word == option).map(|(at, _)| at);
    at.filter_map(|at| command.get(at + 1)).map(String::as_str).collect()
}

/// The directory of the package of this name.
fn package(name: &str) -> Option<PathBuf> {
    let name = name.strip_prefix("rampack-").unwrap_or(name);
    let places = ["crates", "research", "testing"].map(|it| top().join(it).join(name));
    places.into_iter().find(|it| it.is_dir())
}

/// What is wrong with a command of cargo: a package, test or example that there is not, or not in
/// the workspace of the command.
fn fault_of_cargo(command: &[String]) -> Option<String> {
    let packages = [values(command, "-p"), values(command, "--package")].concat();
    let in_research = values(command, "--manifest-path") == ["research/Cargo.toml"];
    let mut directories = Vec::new();
    for name in packages {
        match package(name.trim_end_matches("<crate>")) {
            Some(directory) if directory.starts_with(top().join("research")) != in_research => {
                return Some(format!("{name} is a package of another workspace"));
            }
            Some(directory) => directories.push(directory),
            None => return Some(format!("no package {name}")),
        }
    }
    for (option, under) in [("--test", "tests"), ("--example", "examples"), ("--bench", "benches")]
    {
        for name in values(command, option) {
            let is_there = |directory: &PathBuf| {
                let path = directory.join(under);
                path.join(format!("{name}.rs")).exists() || path.join(name).join("main.rs").exists()
            };
            if !name.contains('*') && !directories.iter().all(is_there) {
                return Some(format!("{option} {name} is not there"));
            }
        }
    }
    None
}

#[test]
fn every_command_line_of_the_documents_is_one() {
    let mut faults = Vec::new();
    let mut seen = 0;
    for path in documents() {
        for block in blocks(&path) {
            for command in commands(&block.text) {
                let name = command[0].rsplit('/').next().unwrap_or_default();
                let fault = match name {
                    "rampack" => {
                        cli::args::Cli::try_parse_from(&command).err().map(|it| it.to_string())
                    }
                    "cargo" => fault_of_cargo(&command),
                    _ => continue,
                };
                seen += 1;
                faults.extend(fault.map(|it| format!("{}: {}: {it}", block.at, command.join(" "))));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(seen > 50, "only {seen} commands were found");
}

/// The commands of the lab, which is of another workspace, by the variants that clap makes them of.
fn commands_of_the_lab() -> BTreeSet<String> {
    let text = fs::read_to_string(top().join("research/lab/src/args.rs")).unwrap();
    let variants = text.split("pub enum Command {\n").nth(1).unwrap().split("\n}").next().unwrap();
    let names = variants.lines().filter_map(|line| line.trim().split_once('(').map(|it| it.0));
    let names = names.filter(|name| name.chars().all(char::is_alphanumeric));
    let kebab = |name: &str| {
        let dashed = |c: char| (c.is_uppercase().then_some('-'), c.to_ascii_lowercase());
        let letters = name.chars().map(dashed).flat_map(|(dash, c)| dash.into_iter().chain([c]));
        letters.collect::<String>().trim_start_matches('-').to_owned()
    };
    names.map(kebab).collect()
}

/// The commands of the lab that a table names: by its name, or first below the title, as the lab
/// writes them itself.
fn commands_of_a_table(text: &str) -> BTreeSet<String> {
    let words: Vec<&str> = text.split_whitespace().filter(|it| !["#", "--"].contains(it)).collect();
    let named = words.windows(2).filter(|it| it[0] == "rampack-lab").map(|it| it[1]);
    let lines: Vec<&str> = text.lines().collect();
    let below = lines.windows(2).filter(|it| it[0].starts_with("## ")).filter_map(|it| {
        let (name, options) = it[1].strip_prefix("# ")?.split_once(' ')?;
        (name.ends_with(';') || options.starts_with("--")).then_some(name)
    });
    named.chain(below).map(|name| name.trim_end_matches([',', ';']).to_owned()).collect()
}

#[test]
fn the_data_name_commands_of_the_lab_or_the_last_commit_with_them() {
    let known = commands_of_the_lab();
    assert!(known.contains("pages") && known.contains("kernel-build"), "{known:?}");
    let (mut seen, mut faults) = (BTreeSet::new(), Vec::new());
    for entry in fs::read_dir(top().join("docs/measuring/data")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for name in commands_of_a_table(&text) {
            let last = format!("# rampack-lab {name} was last in commit ");
            if !known.contains(&name) && !text.contains(&last) {
                faults.push(format!("{}: rampack-lab has no {name}", path.display()));
            }
            seen.insert(name);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let some = ["codecs", "density", "locks", "streams"];
    assert!(some.iter().all(|it| seen.contains(*it)), "{seen:?}");
}

#[test]
fn a_command_that_is_none_is_found() {
    let words = commands(
        "FOO=1 sudo rampack up --size '1 G' # why\ncargo test -p rampack-zram \\\n  --test post\n",
    );
    assert_eq!(words[0], ["rampack", "up", "--size", "1 G"]);
    assert!(cli::args::Cli::try_parse_from(&words[0]).is_err());
    assert_eq!(fault_of_cargo(&words[1]).unwrap(), "--test post is not there");
    let words = commands("cargo build -p rampack-lab");
    assert!(fault_of_cargo(&words[0]).unwrap().contains("another workspace"));
}

#[test]
fn the_links_of_the_documents_lead_somewhere() {
    let mut faults = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(top().join(&path)).unwrap();
        let directory = top().join(&path).parent().unwrap().to_path_buf();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            if file.contains("://") {
                continue;
            }
            let target = if file.is_empty() { top().join(&path) } else { directory.join(file) };
            let is_there = match fs::read_to_string(&target) {
                _ if place.is_empty() => target.exists(),
                Ok(text) => text.lines().any(|line| line.starts_with('#') && anchor(line) == place),
                Err(_) => false,
            };
            if !is_there {
                faults.push(format!("{path}: {link}"));
            }
        }
    }
    assert!(faults.is_empty(), "links to nothing:\n{}", faults.join("\n"));
}

#[test]
fn the_book_has_every_page_by_its_title() {
    let summary = fs::read_to_string(top().join("docs/SUMMARY.md")).unwrap();
    let listed: BTreeSet<&str> = summary.lines().filter_map(|it| it.strip_prefix("- ")).collect();
    let pages = documents().into_iter().filter_map(|path| {
        let page = path.strip_prefix("docs/")?.to_owned();
        let text = fs::read_to_string(top().join(&path)).unwrap();
        let title = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap().to_owned();
        Some(format!("[{title}]({page})"))
    });
    let pages: BTreeSet<String> = pages.collect();
    assert_eq!(listed, pages.iter().map(String::as_str).collect());
}

/// The name of a heading in links.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    text.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

/// `rampack` as a user at two terminals starts it: a daemon runs on, and is ended before the next
/// one begins. `$PROGRAM` is the program, `$PLACE` a directory.
const RAMPACK: &str = r#"#!/bin/sh
case " $1 $* " in
  " exec "* | *" --stdio "*) exec "$PROGRAM" "$@" ;;
  " doctor "*) "$PROGRAM" "$@" || [ $? = 1 ]; exit ;; # 1: this machine has a problem
  " up "*" -- "*) "$PLACE/bin/end"; exec "$PROGRAM" "$@" ;;
  " up "* | " serve "* | " keep "*) ;;
  *) exec "$PROGRAM" "$@" ;;
esac
"$PLACE/bin/end"
rm -f "$PLACE/said" # What the one before said is no sign of this one.
"$PROGRAM" "$@" >"$PLACE/said" 2>&1 &
echo $! >"$PLACE/pid"
for _ in $(seq 600); do
  if grep -qs -e 'end it' -e 'serving in' "$PLACE/said"; then exit 0; fi
  kill -0 $! 2>/dev/null || break
  sleep 0.1
done
cat "$PLACE/said" >&2
exit 1
"#;

/// Ends the daemon, if there is one. A shell has its background ignore the signal of Ctrl-C.
const END: &str = r#"#!/bin/sh
[ -e "$PLACE/pid" ] || exit 0
kill -TERM $(cat "$PLACE/pid") 2>/dev/null
for _ in $(seq 600); do
  kill -0 $(cat "$PLACE/pid") 2>/dev/null || { rm "$PLACE/pid"; exit 0; }
  sleep 0.1
done
echo "the daemon did not end: $(cat "$PLACE/said")" >&2
exit 1
"#;

/// `cargo build` leaves the program that is tested; `cargo run` runs it, or an example.
const CARGO: &str = r#"#!/bin/sh
case "$*" in
  "build --release"*) mkdir -p target/release; ln -sf "$PROGRAM" target/release/rampack ;;
  "xtask dist"*) mkdir -p target/dist; ln -sf "$PROGRAM" target/dist/rampack ;;
  "run --release --bin rampack -- "* | "run --release -- "*)
    while [ "$1" != -- ]; do shift; done; shift; exec rampack "$@" ;;
  "xtask "*) ;; # CI runs it by itself
  *) echo "cargo $*: no test knows how to run this" >&2; exit 1 ;;
esac
"#;

/// What a page begins with: places that are empty, in mounts of its own.
const SETUP: &str = r#"set -eu
trap '"$PLACE/bin/end"' EXIT
mount -t tmpfs none /run
mount -t tmpfs none /mnt
mount -t tmpfs none /var/tmp
mount -t tmpfs none /usr/local/bin
mkdir "$PLACE/lib" "$PLACE/work" /run/lock /mnt/fast
mount --bind "$PLACE/lib" /var/lib
cd "$PLACE/work"
"#;

/// Runs the blocks of a page, one after the other, as root in mounts of its own: /run, /mnt and
/// others are empty there, so nothing meets a daemon or a file of the machine.
fn run_page(path: &str) {
    let place = TempDir::new();
    let bin = place.join("bin");
    fs::create_dir(&bin).unwrap();
    for (name, text) in
        [("rampack", RAMPACK), ("end", END), ("cargo", CARGO), ("sudo", "#!/bin/sh\nexec \"$@\"\n")]
    {
        testkit::script(bin.join(name), text);
    }
    let mut script = String::from(SETUP);
    let all = blocks(path);
    for block in all.iter().filter(|block| block.not_run.is_none()) {
        script.push_str(&format!("echo '--- {}' >&2\n{}", block.at, block.text));
    }
    script.push_str("\"$PLACE/bin/end\"\n");
    let ours = program();
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "300", "unshare", "--mount", "--propagation", "private"]);
    command.args(["sh", "-c", &script]);
    for (name, value) in ours.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bin.display()));
    command.env("PROGRAM", ours.get_program()).env("PLACE", place.path());
    let output = command.output().unwrap();
    // What a page left running that was cut off. It is not killed: its end would be that of its
    // mounts, whose last writes go to itself.
    if place.join("pid").exists() {
        let _ = Command::new(bin.join("end")).env("PLACE", place.path()).status();
    }
    let [out, err] =
        [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    assert!(output.status.success(), "{path}: {:?}\n{out}\n{err}", output.status);
}

/// The pages whose commands are run, with what they need beside a daemon.
const PAGES: &[(&str, &[Need])] = &[
    ("README.md", &[]),
    ("docs/guide/configuration.md", &[]),
    ("docs/guide/containers.md", &[]),
    ("docs/guide/disk.md", &[]),
    ("docs/guide/keep.md", &[]),
    ("docs/guide/nbd.md", &[Need::program("nbdinfo", "libnbd-bin")]),
    (
        "docs/guide/recipes.md",
        &[Need::program("nbdcopy", "libnbd-bin"), Need::program("qemu-img", "qemu-utils")],
    ),
    ("docs/guide/swap.md", &[]),
    ("docs/guide/systemd.md", &[]),
    ("docs/guide/tiers.md", &[]),
    ("docs/guide/watch.md", &[]),
];

#[test]
fn every_page_of_the_guide_is_on_the_list() {
    let named: Vec<&str> = PAGES.iter().map(|page| page.0).collect();
    let there = documents().into_iter().filter(|it| it.contains("/guide/") || it == "README.md");
    assert_eq!(there.collect::<Vec<_>>(), named);
    let reasons = PAGES.iter().flat_map(|page| blocks(page.0)).filter_map(|block| block.not_run);
    for reason in reasons {
        assert!(reason.contains(';'), "say why it is not run; then what shows it: {reason}");
    }
}

#[test]
fn the_commands_of_the_guide_do_what_they_say() {
    let needs = [
        Need::Root,
        Need::Fuse,
        Need::Loop,
        Need::program("mkfs.ext4", "e2fsprogs"),
        Need::program("zramctl", "util-linux"),
        Need::program("unshare", "util-linux"),
    ];
    if !met("the_commands_of_the_guide_do_what_they_say", &needs) {
        return;
    }
    for (path, needs) in PAGES {
        if met(&format!("the_commands_of {path}"), needs) {
            run_page(path);
        }
    }
}
