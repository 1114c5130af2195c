//! `rampack metrics`: what a daemon counts, in the text format of Prometheus.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use control::{ControlError, Errno};
use prometheus::TextEncoder;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, MetricFamily, MetricType};

use crate::args::Metrics;
use crate::terminal::answer;
use service::client;
use service::failure::failed;
use service::protocol::{Metric, MetricKind, Sample};
use service::root::Root;

mod http;

/// Prints, writes or serves what the daemon at `root` counts. A file tells of a daemon that does
/// not answer, too: a collector would serve what was written before for ever.
///
/// # Errors
/// `ENOENT` without a daemon, the daemon's error, or that of the file or the address.
pub(crate) fn run(root: &Root, options: &Metrics) -> Result<(), ControlError> {
    match (&options.textfile, options.listen) {
        (Some(path), _) => {
            let (text, asked) = match asked(root) {
                Ok(text) => (text, Ok(())),
                Err(error) => (text(root, false, &[])?, Err(error)),
            };
            let written = write(path, &text);
            asked.and(written)
        }
        (None, Some(address)) => serve(root, address, options.insecure),
        (None, None) => answer(asked(root)?),
    }
}

/// The text that the daemon at `root` makes for a scrape.
fn asked(root: &Root) -> Result<String, ControlError> {
    text(root, true, &client::metrics(root)?)
}

/// Each sample has the label `root`, so that one collector can have files of several daemons.
fn text(root: &Root, is_up: bool, metrics: &[Metric]) -> Result<String, ControlError> {
    let value = f64::from(u8::from(is_up));
    let up = Metric {
        name: "rampack_up".into(),
        kind: MetricKind::Gauge,
        help: "1: the daemon answered".into(),
        samples: vec![Sample { labels: Vec::new(), value, buckets: Vec::new() }],
    };
    let root = root.path().to_string_lossy();
    let families = [&up].into_iter().chain(metrics).map(|it| family(it, &root));
    let families: Vec<MetricFamily> = families.collect();
    let text = TextEncoder::new().encode_to_string(&families);
    text.map_err(|error| ControlError::new(Errno::EPROTO, format!("no metrics: {error}")))
}

fn family(metric: &Metric, root: &str) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(metric.name.clone());
    family.set_help(metric.help.clone());
    family.set_field_type(match metric.kind {
        MetricKind::Counter => MetricType::COUNTER,
        MetricKind::Gauge => MetricType::GAUGE,
        MetricKind::Histogram => MetricType::HISTOGRAM,
    });
    family.set_metric(metric.samples.iter().map(|it| sample(it, metric.kind, root)).collect());
    family
}

fn sample(sample: &Sample, kind: MetricKind, root: &str) -> prometheus::proto::Metric {
    let labels = sample.labels.iter().map(|(name, value)| (&**name, &**value));
    let labels = labels.chain([("root", root)]).map(|(name, value)| {
        let mut label = LabelPair::default();
        label.set_name(name.into());
        label.set_value(value.into());
        label
    });
    let mut metric = prometheus::proto::Metric::from_label(labels.collect());
    match kind {
        MetricKind::Counter => {
            let mut counter = Counter::default();
            counter.set_value(sample.value);
            metric.set_counter(counter);
        }
        MetricKind::Gauge => {
            let mut gauge = Gauge::default();
            gauge.set_value(sample.value);
            metric.set_gauge(gauge);
        }
        MetricKind::Histogram => metric.set_histogram(histogram(sample)),
    }
    metric
}

/// The last bucket has all values: the text says that by itself.
fn histogram(sample: &Sample) -> Histogram {
    let mut histogram = Histogram::default();
    if let Some(((_, all), bounded)) = sample.buckets.split_last() {
        let bucket = |(bound, count): &(f64, u64)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(*count);
            bucket
        };
        histogram.set_bucket(bounded.iter().map(bucket).collect());
        histogram.set_sample_count(*all);
    }
    histogram.set_sample_sum(sample.value);
    histogram
}

/// Has `text` in the file at `path`. A reader finds the text before, or all of this one.
fn write(path: &Path, text: &str) -> Result<(), ControlError> {
    // The text takes the place of what is there: /dev/stdout would be a file from then on.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let message = format!(
            "cannot write {}: it is there and no file; without --textfile, the text goes to \
             standard output",
            path.display()
        );
        return Err(ControlError::invalid(message));
    }
    let mut beside = path.as_os_str().to_owned();
    // Collectors read what ends in .prom.
    beside.push(format!(".{}", std::process::id()));
    let written = || {
        let _ = fs::remove_file(&beside);
        let mut options = fs::File::options();
        options.write(true).create_new(true).mode(0o644);
        options.open(&beside)?.write_all(text.as_bytes())?;
        fs::rename(&beside, path)
    };
    written().map_err(|error| {
        let _ = fs::remove_file(&beside);
        failed(format!("cannot write {}", path.display()), &error)
    })
}

fn serve(root: &Root, address: SocketAddr, insecure: bool) -> Result<(), ControlError> {
    if !address.ip().is_loopback() && !insecure {
        let message = format!(
            "other machines may reach {address} and read everything that is counted; listen at a \
             loopback address such as 127.0.0.1:{}, or add --insecure",
            address.port()
        );
        return Err(ControlError::new(Errno::EPERM, message));
    }
    let what = || format!("cannot listen at {address}");
    let listener = TcpListener::bind(address).map_err(|error| failed(what(), &error))?;
    let bound = listener.local_addr().map_err(|error| failed(what(), &error))?;
    answer(format!("serving http://{bound}/metrics until Ctrl-C\n"))?;
    http::serve(&listener, &|| asked(root)).map_err(|error| failed(what(), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_is_replaced() {
        let dir = testkit::TempDir::new();
        let (socket, link, file) = (dir.join("socket"), dir.join("link"), dir.join("file"));
        let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        for path in [&socket, &link] {
            assert_eq!(write(path, "text").unwrap_err().errno, Errno::EINVAL);
            assert!(!path.is_file(), "{}", path.display());
        }
        write(&file, "text").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    }

    #[test]
    fn values_and_labels_are_written_so_that_they_can_be_read() {
        let sample = |labels: &[(&str, &str)], value| {
            let labels = labels.iter().map(|(a, b)| ((*a).to_string(), (*b).to_string()));
            Sample { labels: labels.collect(), value, buckets: Vec::new() }
        };
        let gauge = Metric {
            name: "rampack_it_bytes".into(),
            kind: MetricKind::Gauge,
            help: "what\nit is".into(),
            samples: vec![sample(&[("device", "a\"b\\c\nd")], 1e15), sample(&[], -0.5)],
        };
        let counter = Metric {
            name: "rampack_it_total".into(),
            kind: MetricKind::Counter,
            help: "it".into(),
            samples: vec![sample(&[("device", "zram0"), ("tier", "cold")], 7.0)],
        };
        let buckets = vec![(1e-6, 2), (0.25, 3), (f64::MAX, 4)];
        let histogram = Metric {
            name: "rampack_it_seconds".into(),
            kind: MetricKind::Histogram,
            help: "it".into(),
            samples: vec![Sample { buckets, ..sample(&[("device", "x")], 1.5) }],
        };
        let expected = "# HELP rampack_up 1: the daemon answered\n\
                        # TYPE rampack_up gauge\n\
                        rampack_up{root=\"/r\"} 1\n\
                        # HELP rampack_it_bytes what\\nit is\n\
                        # TYPE rampack_it_bytes gauge\n\
                        rampack_it_bytes{device=\"a\\\"b\\\\c\\nd\",root=\"/r\"} 1000000000000000\n\
                        rampack_it_bytes{root=\"/r\"} -0.5\n\
                        # HELP rampack_it_total it\n\
                        # TYPE rampack_it_total counter\n\
                        rampack_it_total{device=\"zram0\",tier=\"cold\",root=\"/r\"} 7\n\
                        # HELP rampack_it_seconds it\n\
                        # TYPE rampack_it_seconds histogram\n\
                        rampack_it_seconds_bucket{device=\"x\",root=\"/r\",le=\"0.000001\"} 2\n\
                        rampack_it_seconds_bucket{device=\"x\",root=\"/r\",le=\"0.25\"} 3\n\
                        rampack_it_seconds_bucket{device=\"x\",root=\"/r\",le=\"+Inf\"} 4\n\
                        rampack_it_seconds_sum{device=\"x\",root=\"/r\"} 1.5\n\
                        rampack_it_seconds_count{device=\"x\",root=\"/r\"} 4\n";
        let root = Root::choose(Some(Path::new("/r"))).unwrap();
        assert_eq!(text(&root, true, &[gauge, counter, histogram]).unwrap(), expected);
    }
}
