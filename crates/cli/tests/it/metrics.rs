//! `rampack metrics` and `rampack top`: what they print, write and serve, and that what is in dist/
//! names metrics that there are.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testkit::{Need, met};

use crate::common::{Daemon, NbdClient, Place, program, rampack, refused, said, wait_until};

const DISK: &str = "up --transport nbd --size 64M --algorithm lzo --auto";

/// A daemon that has stored something.
fn daemon(place: &Place) -> Daemon {
    let daemon = Daemon::start(place, DISK);
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    assert_eq!(client.write(0, &b"a page of text. ".repeat(1024)), 0);
    daemon
}

/// The names of the metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|line| line.split(' ').next().unwrap().to_string()).collect()
}

/// The value of the sample that begins with `begin`. The label of the daemon comes last.
#[track_caller]
fn value(text: &str, begin: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(begin.trim_end_matches('}')));
    let line = line.unwrap_or_else(|| panic!("no {begin} in: {text}"));
    let (labels, value) = line.rsplit_once("} ").unwrap();
    assert!(labels.trim_start_matches(['{', ',']).starts_with("root=\""), "{begin} in: {text}");
    value.parse().unwrap()
}

/// A server of metrics, which is gone when the test ends.
struct Scraped {
    child: Child,
    address: String,
}

impl Scraped {
    fn start(place: &Place) -> Scraped {
        let mut command = program();
        command.arg("--root").arg(place.root()).args(["metrics", "--listen", "0"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        let address = address.unwrap_or_else(|| panic!("{line}")).to_string();
        assert!(address.starts_with("127.0.0.1:"), "{line}");
        Scraped { child, address }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Scraped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_daemon_is_counted_in_the_format_of_prometheus() {
    let place = Place::new();
    let daemon = daemon(&place);
    let text = daemon.does("metrics");
    assert_eq!(value(&text, "rampack_zram_writes_pages_total{device=\"zram0\"}"), 4.0);
    assert_eq!(value(&text, "rampack_zram_orig_data_size_bytes{device=\"zram0\"}"), 16384.0);
    assert!(value(&text, "rampack_zram_saved_bytes{device=\"zram0\"}") > 0.0);
    assert_eq!(value(&text, "rampack_zswap_rejects_total{reason=\"compress_poor\"}"), 0.0);
    assert_eq!(value(&text, "rampack_zswap_saved_bytes"), 0.0);
    assert!(text.contains("# TYPE rampack_zram_writes_pages_total counter\n"), "{text}");
    assert!(text.contains("# TYPE rampack_zram_disksize_bytes gauge\n"), "{text}");
    assert!(text.contains("# HELP rampack_zram_writes_pages_total pages written\n"), "{text}");
    // Tiers are there after the first look at pages.
    let tiers = || daemon.does("metrics").contains("\"zram0\",tier=\"warm\"");
    wait_until("numbers of tiers", tiers);
    daemon.stop();
    place.is_clean();
}

#[test]
fn requests_are_timed_when_that_is_asked_for() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 64M");
    let client = || NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    // A connection that was there before is timed too.
    let mut before = client();
    let mut write = |count: u64| {
        for n in 0..count {
            assert_eq!(before.write(n * 4096, &crate::common::noise(n)), 0);
        }
    };
    write(16);
    assert!(!daemon.does("metrics").contains("rampack_request_seconds"));
    assert_eq!(daemon.does("get kernel/debug/rampack latencies"), "0\n");
    daemon.does("set kernel/debug/rampack latencies=1");
    write(32);
    assert_eq!(client().read(0, 4096), crate::common::noise(0));
    let text = daemon.does("metrics");
    let of_writes = "{device=\"zram0\",operation=\"write\"}";
    // Each CPU times its first request of eight.
    let count = value(&text, &format!("rampack_request_seconds_count{of_writes}"));
    assert!((4.0..32.0).contains(&count), "{text}");
    assert!(value(&text, &format!("rampack_request_seconds_sum{of_writes}")) > 0.0);
    daemon.does("set kernel/debug/rampack latencies=0");
    write(32);
    let after = daemon.does("metrics");
    assert_eq!(value(&after, &format!("rampack_request_seconds_count{of_writes}")), count);
    let wrong = daemon.ask("set kernel/debug/rampack latencies=maybe");
    refused(&wrong, 1, &["latencies takes Y or N", "EINVAL"]);
    // With a client the daemon would not stop.
    drop(before);
    daemon.stop();
}

#[test]
fn prometheus_has_nothing_to_say_of_the_names() {
    if !met("metrics by promtool", &[Need::program("promtool", "prometheus")]) {
        return;
    }
    let place = Place::new();
    let daemon = daemon(&place);
    daemon.does("set kernel/debug/rampack latencies=1");
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    (0..16).for_each(|page| assert_eq!(client.write(page * 4096, &[1; 4096]), 0));
    drop(client);
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(daemon.does("metrics").as_bytes()).unwrap();
    let checked = said(&child.wait_with_output().unwrap());
    assert_eq!((checked.code, &*checked.out, &*checked.err), (0, "", ""));
    let rules = top().join("dist/alerts.yml");
    let checked =
        said(&Command::new("promtool").args(["check", "rules"]).arg(&rules).output().unwrap());
    assert_eq!(checked.code, 0, "{}{}", checked.out, checked.err);
    daemon.stop();
}

#[test]
fn a_textfile_is_whole_or_not_there() {
    let place = Place::new();
    let daemon = daemon(&place);
    let file = place.path().join("rampack.prom");
    fs::write(&file, "old").unwrap();
    daemon.does(&format!("metrics --textfile {}", file.display()));
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(names(&text), names(&daemon.does("metrics")));
    let found: Vec<PathBuf> = crate::common::listing(place.path());
    assert!(found.iter().all(|path| *path == file || *path == place.root()), "{found:?}");
    let nowhere = daemon.ask(&format!("metrics --textfile {}/no/x.prom", place.path().display()));
    refused(&nowhere, 1, &["cannot write", "/no/x.prom", "ENOENT"]);
    daemon.stop();
    // Without a daemon the file says so. What it said before would be served for ever.
    let root = place.root();
    let root = root.display();
    let gone = rampack(&format!("--root {root} metrics --textfile {}", file.display()));
    refused(&gone, 1, &["no rampack daemon runs in", "ENOENT"]);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.ends_with(&format!("\nrampack_up{{root=\"{root}\"}} 0\n")), "{text}");
    assert_eq!(names(&text).len(), 1, "{text}");
}

/// node_exporter refuses all files if two have the same series.
#[test]
fn two_daemons_have_no_series_in_common() {
    let series = |daemon: &Daemon| -> BTreeSet<String> {
        let text = daemon.does("metrics");
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    };
    let places = [Place::new(), Place::new()];
    let daemons = places.each_ref().map(daemon);
    let [one, other] = daemons.each_ref().map(series);
    assert!(one.len() > 10);
    let both: Vec<_> = one.intersection(&other).collect();
    assert!(both.is_empty(), "{both:?}");
    daemons.into_iter().for_each(Daemon::stop);
}

#[test]
fn each_scrape_asks_the_daemon() {
    let place = Place::new();
    let daemon = daemon(&place);
    let server = Scraped::start(&place);
    let scraped = server.get("/metrics");
    let (head, text) = scraped.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", text.len())), "{head}");
    assert_eq!(value(text, "rampack_zram_writes_pages_total{device=\"zram0\"}"), 4.0);
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    assert_eq!(client.write(0, &[0; 4096]), 0);
    // A client that says nothing keeps nobody out.
    let silent = TcpStream::connect(&server.address).unwrap();
    let next = server.get("/metrics");
    assert_eq!(value(&next, "rampack_zram_writes_pages_total{device=\"zram0\"}"), 5.0);
    drop(silent);
    assert!(server.get("/other").starts_with("HTTP/1.1 404 "));
    drop(client);
    daemon.stop();
    let none = server.get("/metrics");
    assert!(none.starts_with("HTTP/1.1 503 ") && none.contains("no rampack daemon"), "{none}");
}

#[test]
fn an_address_that_others_reach_is_refused() {
    let said = rampack("--root /nonexistent/r metrics --listen 0.0.0.0:9713");
    refused(&said, 1, &["0.0.0.0:9713", "127.0.0.1:9713", "--insecure", "EPERM"]);
    refused(&rampack("metrics --listen 99999"), 2, &["a port is at most 65535"]);
    refused(&rampack("metrics --insecure"), 2, &["--listen"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let said = rampack(&format!("--root /nonexistent/r metrics --listen {address}"));
    refused(&said, 1, &["cannot listen at", &address.to_string(), "EADDRINUSE"]);
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Words that begin with `rampack_`.
fn named_in(text: &str) -> BTreeSet<String> {
    let is_in_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_in_a_name(c)).filter(|word| word.starts_with("rampack_"));
    words.map(|word| word.strip_suffix("_bucket").unwrap_or(word).to_owned()).collect()
}

#[test]
fn the_dashboard_and_the_alerts_name_what_is_counted() {
    let place = Place::new();
    let daemon = daemon(&place);
    let tiers = || daemon.does("metrics").contains("rampack_zram_tier_pages");
    wait_until("numbers of tiers", tiers);
    let mut known = names(&daemon.does("metrics"));
    daemon.stop();
    // And what a daemon with swap devices counts.
    let metrics = service::metrics::of(&crate::golden::devices(), &crate::schema::reports()[0]);
    known.extend(metrics.into_iter().map(|metric| metric.name));
    for file in ["grafana-dashboard.json", "alerts.yml"] {
        let text = fs::read_to_string(top().join("dist").join(file)).unwrap();
        let named = named_in(&text);
        assert!(named.len() > 5, "{file}");
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "dist/{file}: {unknown:?}");
    }
    let text = fs::read_to_string(top().join("dist/grafana-dashboard.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have the same id");
}

#[test]
fn top_without_a_terminal_says_what_to_do() {
    let place = Place::new();
    let daemon = daemon(&place);
    refused(&daemon.ask("top"), 1, &["needs a terminal", "status", "ENOTTY"]);
    daemon.stop();
    let none = rampack(&format!("--root {} top", place.root().display()));
    refused(&none, 1, &["no rampack daemon runs in", "ENOENT"]);
    refused(&rampack("top --interval 0"), 2, &["0", "from 1 to 3600"]);
}

/// A terminal of a tmux server of its own, which ends with the test.
struct Tmux {
    socket: PathBuf,
}

impl Tmux {
    fn start(place: &Place, command: &str) -> Tmux {
        let tmux = Tmux { socket: place.path().join("tmux") };
        let started =
            tmux.run(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", command]);
        assert_eq!(started.code, 0, "{}", started.err);
        tmux
    }

    fn run(&self, words: &[&str]) -> crate::common::Said {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.socket).args(words).env("TERM", "xterm-256color");
        command.env("LC_ALL", "C.UTF-8").env_remove("TMUX").stdin(Stdio::null());
        said(&command.output().unwrap())
    }

    fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"]).out
    }

    #[track_caller]
    fn shows(&self, text: &str) {
        wait_until(&format!("{text:?} on the terminal"), || self.screen().contains(text));
    }

    fn press(&self, key: &str) {
        self.run(&["send-keys", key]);
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

#[test]
fn top_is_driven_by_keys() {
    if !met("top on a terminal", &[Need::program("tmux", "tmux")]) {
        return;
    }
    let place = Place::new();
    let daemon = daemon(&place);
    let (program, root) = (env!("CARGO_BIN_EXE_rampack"), place.root());
    let terminal = Tmux::start(
        &place,
        &format!("'{program}' --root '{}' top; echo ended with $?; sleep 60", root.display()),
    );
    terminal.shows("> zram0");
    terminal.shows("saves ");
    terminal.shows("TIERS of zram0");
    terminal.shows("sort: name");
    terminal.press("s");
    terminal.shows("sort: data");
    terminal.press("p");
    terminal.shows("PAUSED");
    terminal.press("p");
    wait_until("the end of the pause", || !terminal.screen().contains("PAUSED"));
    terminal.press("c");
    terminal.shows("zram0: compressed again");
    terminal.press("w");
    terminal.shows("write back every page of zram0?");
    terminal.press("y");
    terminal.shows("zram0: not written back");
    terminal.press("l");
    terminal.shows("requests: timed");
    let before = daemon.does("get zram0 num_writes");
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    assert_eq!(client.write(1 << 20, &b"more of the text".repeat(1 << 16)), 0);
    assert_ne!(daemon.does("get zram0 num_writes"), before);
    for page in 0..16 {
        assert_eq!(client.write(page * 4096, &[7; 4096]), 0);
    }
    drop(client);
    terminal.shows("writes: p50 ");
    terminal.press("q");
    terminal.shows("ended with 0");
    daemon.stop();
    place.is_clean();
}
