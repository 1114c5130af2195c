//! `rampack-lab nbd`, at a small size.

use crate::common::{Place, rampack};
use serde_json::Value;
use testkit::Need;

fn needs() -> [Need; 2] {
    [Need::program("fio", "fio"), Need::program("nbdkit", "nbdkit")]
}

#[test]
fn servers_take_turns() {
    if !testkit::met("servers_take_turns", &needs()) {
        return;
    }
    let place = Place::new();
    let rampack = rampack();
    let rampack = rampack.to_str().expect("a path");
    let line = format!("nbd --rampack {rampack} --size 4M --milliseconds 60 --repeat 2");
    let result = place.json(&line);
    assert_eq!(result["size_bytes"], 4 << 20);
    let servers = result["servers"].as_array().expect("a list");
    assert!((2..=5).contains(&servers.len()), "{result}");
    assert_eq!(servers[0]["name"], "rampack");
    assert!(servers.iter().all(|it| it["resident_bytes"].as_u64().is_some_and(|bytes| bytes > 0)));
    let loads = result["loads"].as_array().expect("a list");
    assert_eq!(loads.len(), 4 * servers.len());
    for side in loads.iter().flat_map(|load| [&load["write"], &load["read"]]) {
        let list = |name: &str| {
            let values = side[name].as_array().expect("a list").iter();
            values.map(|it| it.as_f64().expect("a number")).collect::<Vec<f64>>()
        };
        assert!(list("rounds").len() == 2 && list("rounds").iter().all(|rate| *rate > 0.0));
        assert!(list("server_cpu_us").iter().all(|time| *time >= 0.0), "{side}");
    }
    let rate = |load: &Value| load["write"]["rounds"][1].as_f64().expect("a rate");
    for (n, load) in loads.iter().enumerate() {
        let ours = &loads[n - n % servers.len()];
        assert_eq!(ours["name"], "rampack");
        let times = load["write"]["ours_times"][1].as_f64().expect("a ratio");
        assert!((times / (rate(ours) / rate(load)) - 1.0).abs() < 1e-6, "{result}");
    }
    place.assert_nothing_left();
}

#[test]
fn a_server_that_does_not_start_is_an_error_and_leaves_nothing() {
    let test = "a_server_that_does_not_start_is_an_error_and_leaves_nothing";
    if !testkit::met(test, &needs()) {
        return;
    }
    let place = Place::new();
    let message = place.refused("nbd --rampack /bin/false");
    assert!(message.contains("/bin/false"), "{message}");
    let message = place.refused("nbd --rampack missing");
    assert!(message.contains("missing"), "{message}");
    place.assert_nothing_left();
}
