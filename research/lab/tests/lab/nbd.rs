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
    let line = format!("nbd --rampack {rampack} --size 4M --milliseconds 100 --repeat 2");
    let result = place.json(&line);
    assert_eq!(result["size_bytes"], 4 << 20);
    assert_eq!(result["queue_depth"], 16);
    let servers = result["servers"].as_array().expect("a list");
    assert!((2..=3).contains(&servers.len()), "{result}");
    assert_eq!(servers[0]["name"], "rampack");
    for server in servers {
        for side in ["write", "read"] {
            let rounds = server[side]["rounds"].as_array().expect("a list");
            assert_eq!(rounds.len(), 2);
            assert!(rounds.iter().all(|rate| rate.as_f64().is_some_and(|rate| rate > 0.0)));
            assert!(server[side]["requests"].as_u64().is_some_and(|n| n > 0), "{server}");
        }
        assert!(server["resident_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{server}");
    }
    let ratios = result["ratios"].as_array().expect("a list");
    assert_eq!(ratios.len(), servers.len() - 1);
    for (ratio, server) in ratios.iter().zip(&servers[1..]) {
        assert_eq!(ratio["over"], server["name"]);
        let rate = |server: &Value| server["write"]["per_second"].as_f64().expect("a rate");
        let wanted = rate(&servers[0]) / rate(server);
        let write = ratio["write"].as_f64().expect("a ratio");
        assert!((write / wanted - 1.0).abs() < 1e-6, "{result}");
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
